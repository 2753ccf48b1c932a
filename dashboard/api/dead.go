package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// deadAsk is the JSON form of a filter of dead letters.
type deadAsk struct {
	IDs       []int64 `json:"ids"`
	Group     string  `json:"group"`
	Kind      string  `json:"kind"`
	Error     string  `json:"error"`
	OlderThan string  `json:"older_than"`
	NewerThan string  `json:"newer_than"`
	All       bool    `json:"all"`
	DryRun    bool    `json:"dry_run"`
}

// filter returns the filter. A filter that names all dead letters must say so with all.
func (a deadAsk) filter() (filter jobstore.DeadFilter, err error) {
	filter, wrong := a.parts()
	named := a.IDs != nil || a.Group != "" || a.Kind != "" || a.Error != "" || a.OlderThan != "" || a.NewerThan != ""
	if named == a.All {
		wrong = append(wrong, web.WrongBody("one or more of ids, group, kind, error, older_than and newer_than are required, or all alone"))
	}
	return filter, web.WrongFields(wrong...)
}

// parts returns the filter without checking that it names anything.
func (a deadAsk) parts() (filter jobstore.DeadFilter, wrong []web.FieldError) {
	filter = jobstore.DeadFilter{IDs: a.IDs, Group: a.Group, Kind: a.Kind, Error: a.Error}
	for _, age := range []struct {
		name, text string
		value      *time.Duration
	}{{"older_than", a.OlderThan, &filter.OlderThan}, {"newer_than", a.NewerThan, &filter.NewerThan}} {
		if age.text == "" {
			continue
		}
		d, err := config.ParseDuration(age.text)
		if err != nil || d <= 0 {
			wrong = append(wrong, web.WrongField(age.name, "must be a duration such as 90s, 6h or 2d"))
			continue
		}
		*age.value = d.Std()
	}
	return filter, wrong
}

// deadFilter returns the filter of a list of dead letters.
func deadFilter(q *web.Query) jobstore.DeadFilter {
	filter, wrong := deadAsk{
		Kind: q.Values.Get("kind"), Error: q.Values.Get("error"), OlderThan: q.Values.Get("older_than"), NewerThan: q.Values.Get("newer_than"),
	}.parts()
	for _, one := range wrong {
		q.Errs = append(q.Errs, errors.New(one.Whole))
	}
	return filter
}

func (s *API) apiDead(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	filter := deadFilter(q)
	if q.Reject(w) {
		return
	}
	groups, err := s.Source.Dead.DeadGroups(r.Context(), filter)
	answerList(s, w, r, groups, err)
}

// apiDeadJobs lists the dead letters of a group, or of all groups.
func (s *API) apiDeadJobs(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	filter, before, limit := deadFilter(q), q.Number("before"), q.Limit()
	filter.Group = r.PathValue("group")
	if q.Reject(w) {
		return
	}
	letters, err := s.Source.Dead.DeadLetters(r.Context(), filter, before, limit)
	if err == nil && len(letters) == 0 && before == 0 && filter.Group != "" {
		s.AnswerError(w, r, cluster.ErrNoSuchGroup)
		return
	}
	answerPage(s, w, r, q, letters, err, limit, func(l jobstore.DeadLetter) int64 { return l.ID })
}

// apiActOnDead applies an action to all dead letters that a filter names.
func (s *API) apiActOnDead(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked deadAsk
		err := web.ReadJSON(w, r, &asked)
		var filter jobstore.DeadFilter
		if err == nil {
			filter, err = asked.filter()
		}
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		done, err := s.ActOnDead(r.Context(), jobstore.Order{Action: action, By: auth.RequestOrigin(r, viaAPI)}, filter, asked.DryRun)
		s.answer(w, r, http.StatusOK, done, err)
	}
}
