package dashboard

import (
	"errors"
	"net/http"
	"time"

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
		wrong = append(wrong, wrongBody("one or more of ids, group, kind, error, older_than and newer_than are required, or all alone"))
	}
	return filter, wrongFields(wrong...)
}

// parts returns the filter without checking that it names anything.
func (a deadAsk) parts() (filter jobstore.DeadFilter, wrong []fieldError) {
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
			wrong = append(wrong, wrongField(age.name, "must be a duration such as 90s, 6h or 2d"))
			continue
		}
		*age.value = d.Std()
	}
	return filter, wrong
}

// deadFilter returns the filter of a list of dead letters.
func deadFilter(q *query) jobstore.DeadFilter {
	filter, wrong := deadAsk{
		Kind: q.values.Get("kind"), Error: q.values.Get("error"), OlderThan: q.values.Get("older_than"), NewerThan: q.values.Get("newer_than"),
	}.parts()
	for _, one := range wrong {
		q.errs = append(q.errs, errors.New(one.whole))
	}
	return filter
}

func (s *apiServer) apiDead(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	filter := deadFilter(q)
	if q.reject(w) {
		return
	}
	groups, err := s.Source.Dead.DeadGroups(r.Context(), filter)
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(groups, ""))
}

// apiDeadJobs lists the dead letters of a group, or of all groups.
func (s *apiServer) apiDeadJobs(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	filter, before, limit := deadFilter(q), q.number("before"), q.limit()
	filter.Group = r.PathValue("group")
	if q.reject(w) {
		return
	}
	letters, err := s.Source.Dead.DeadLetters(r.Context(), filter, before, limit)
	if err == nil && len(letters) == 0 && before == 0 && filter.Group != "" {
		s.answerError(w, r, errNoSuchGroup)
		return
	}
	answerPage(s, w, r, q, letters, err, limit, func(l jobstore.DeadLetter) int64 { return l.ID })
}

// apiActOnDead applies an action to all dead letters that a filter names.
func (s *apiServer) apiActOnDead(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked deadAsk
		err := readJSON(w, r, &asked)
		var filter jobstore.DeadFilter
		if err == nil {
			filter, err = asked.filter()
		}
		if err != nil {
			s.answerError(w, r, err)
			return
		}
		done, err := s.actOnDead(r.Context(), jobstore.Order{Action: action, By: requestOrigin(r, viaAPI)}, filter, asked.DryRun)
		if err != nil {
			s.answerError(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, done)
	}
}
