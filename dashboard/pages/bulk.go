package pages

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// errNothingToChange is returned for pages of a read-only server.
var errNothingToChange = errors.New("nothing can be changed from here")

// bulkFilter reads the filter of a bulk action. The page and the limit belong to the list
// alone.
func bulkFilter(get func(key string) string) (jobstore.Filter, error) {
	where, err := filter.Parse(get("filter"), jobstore.Keys)
	if err != nil {
		return jobstore.Filter{}, web.BadRequest(err)
	}
	return jobstore.Filter{State: get("state"), Kind: get("kind"), Queue: get("queue"), Cron: get("cron")}.Narrow(where), nil
}

// bulkActs returns the buttons for actions on all jobs that match the list's filter. An empty
// list has none. If the list shows all of them, an action needs one that it can change.
func (s *Pages) bulkActs(req *request, filter jobstore.Filter, found jobstore.Found) []act {
	if len(found.Jobs) == 0 {
		return nil
	}
	complete := found.Next == 0 && filter.BeforeID == 0
	filter = jobstore.Filter{State: filter.State, Kind: filter.Kind, Queue: filter.Queue, Cron: filter.Cron, Where: filter.Where}
	var buttons []act
	for _, action := range jobstore.Actions {
		if s.JobOps != nil && req.may(route.Operator) && cluster.CheckBulk(action, filter) == nil && (!complete || cluster.CanChangeAny(action, filter, found.Jobs)) {
			buttons = append(buttons, act{"/bulk/jobs/" + string(action) + "?" + filterValues(filter), title(action) + " all", Icons[action]})
		}
	}
	return buttons
}

// bulkNotice reports the result of the form that redirected to the page.
func bulkNotice(req *request) string {
	n, err := strconv.Atoi(req.Values.Get("n"))
	did := cluster.PastTense[jobstore.Action(req.Values.Get("did"))]
	if err != nil || did == "" {
		return ""
	}
	return format.Plural(n, "job was ", "jobs were ") + did + "."
}

// bulkBody is the confirmation page of a bulk action.
type bulkBody struct {
	base
	Action, Title, Icon string
	Filter              jobstore.Filter
	Named               []fact
	// Jobs is the number of matching jobs. If Over is not 0, there are more than Over jobs.
	Jobs, Over int64
	// UpTo is the highest id of these jobs. Later jobs are not changed.
	UpTo int64
	// What describes the effect. Refused is the reason why the action is not possible.
	What, Refused string
	Back          string
}

// loadBulk loads the confirmation page of a bulk action.
func loadBulk(action jobstore.Action) func(*Pages, context.Context, *request) (body, error) {
	return func(s *Pages, ctx context.Context, req *request) (body, error) {
		filter, err := bulkFilter(req.Values.Get)
		if err != nil {
			return nil, err
		}
		err = cluster.CheckBulk(action, filter)
		if s.JobOps == nil {
			err = errNothingToChange
		}
		if err != nil {
			return nil, web.BadRequest(err)
		}
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		counted, err := s.CountBulk(ctx, action, filter)
		if err != nil {
			return nil, err
		}
		b := &bulkBody{
			base:   base{name: title(action) + " jobs", beat: s.pulseOf(facts)},
			Action: string(action), Title: title(action), Icon: Icons[action], Filter: filter, Named: filterFacts(action, filter),
			Jobs: counted.Jobs, UpTo: counted.UpTo, What: bulkEffects[action], Back: "/jobs?" + filterValues(filter),
		}
		if err := cluster.CheckBulkCount(action, counted); err != nil {
			b.Refused = err.Error()
		}
		if counted.Jobs > cluster.MaxBulk {
			b.Over = cluster.MaxBulk
		}
		return b, nil
	}
}

// filterFacts describes a filter. A retry without a state matches the discarded jobs, like
// the command.
func filterFacts(action jobstore.Action, filter jobstore.Filter) []fact {
	state := filter.State
	if state == "" && action == jobstore.Retry {
		state = "discarded"
	}
	return withoutEmpty([]fact{{"State", state}, {"Kind", filter.Kind}, {"Queue", filter.Queue}, {"Cron", filter.Cron}, {"Filter", filter.Where.String()}})
}

// bulkEffects describe the effect of an action on many jobs.
var bulkEffects = map[jobstore.Action]string{
	jobstore.Cancel:  "Waiting jobs will not run. Running jobs are stopped; what they have done so far remains.",
	jobstore.Retry:   "They run again now, from the beginning. What their earlier attempts have done remains.",
	jobstore.Discard: "They end as if their last attempt had failed, and notifications of failed runs are sent.",
}

// formActOnAll applies the confirmed action to the jobs that were counted.
func (s *Pages) formActOnAll(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.Form(w, r)
		if !ok {
			return
		}
		filter, err := bulkFilter(fields.Get)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		upTo, err := strconv.ParseInt(fields.Get("up_to"), 10, 64)
		if err != nil || upTo < 1 {
			s.AnswerError(w, r, web.Refuse(http.StatusBadRequest, "The form lacks up_to, the highest id that was counted."))
			return
		}
		if err := cluster.CheckBulk(action, filter); err != nil {
			s.AnswerError(w, r, err)
			return
		}
		done, err := s.ActOnAll(r.Context(), jobstore.Order{Action: action, By: auth.RequestOrigin(r, viaPage)}, filter, upTo, false)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		redirectWithNotice(w, r, "/jobs?"+filterValues(filter, "did", string(action), "n", strconv.Itoa(done.Changed)))
	}
}
