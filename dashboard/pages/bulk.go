package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

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
	return jobstore.Filter{State: get("state"), Kind: get("kind"), Queue: get("queue"), Cron: get("cron"), Sort: jobstore.Sort(get("sort"))}.Narrow(where), nil
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

// picks returns the buttons for actions on selected rows.
func picks(path string, actions []jobstore.Action) (buttons []act) {
	for _, action := range actions {
		buttons = append(buttons, act{path + string(action), title(action) + " selected", Icons[action]})
	}
	return buttons
}

// pickedIDs returns the ids of selected rows.
func pickedIDs(texts []string) (ids []int64, err error) {
	if len(texts) > web.MaxLimit {
		return nil, web.Refuse(http.StatusUnprocessableEntity, fmt.Sprintf("%d jobs are selected, but at most %d can be.", len(texts), web.MaxLimit))
	}
	for _, text := range texts {
		id, err := cluster.JobID(text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// countedBefore returns what a confirmation page has counted. Rows that were added or ended
// later are not changed.
func countedBefore(fields url.Values) (counted jobstore.Matching, err error) {
	counted.UpTo, err = strconv.ParseInt(fields.Get("up_to"), 10, 64)
	if err != nil || counted.UpTo < 1 {
		return counted, web.Refuse(http.StatusBadRequest, "The form lacks up_to, the highest id that was counted.")
	}
	if text := fields.Get("as_of"); text != "" {
		if counted.AsOf, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return counted, web.Refuse(http.StatusBadRequest, "as_of must be the time of the count.")
		}
	}
	return counted, nil
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
	// UpTo is the highest id of these jobs, AsOf the time of the count. Jobs that were added or
	// ended later are not changed.
	UpTo int64
	AsOf string
	// IDs are the selected jobs; empty: all that match the filter.
	IDs []int64
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
		ids, err := pickedIDs(req.Values["id"])
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			err = cluster.CheckBulk(action, filter)
		}
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
		if len(ids) > 0 {
			return &bulkBody{
				base:   base{name: title(action) + " jobs", beat: s.pulseOf(facts)},
				Action: string(action), Title: title(action), Icon: Icons[action], Filter: filter, Named: []fact{{"Selected", listIDs(ids)}},
				Jobs: int64(len(ids)), IDs: ids, What: bulkEffects[action] + " Jobs for which this is not possible are not changed.", Back: "/jobs?" + filterValues(filter),
			}, nil
		}
		counted, err := s.CountBulk(ctx, action, filter, jobstore.Matching{})
		if err != nil {
			return nil, err
		}
		b := &bulkBody{
			base:   base{name: title(action) + " jobs", beat: s.pulseOf(facts)},
			Action: string(action), Title: title(action), Icon: Icons[action], Filter: filter, Named: filterFacts(action, filter),
			Jobs: counted.Jobs, UpTo: counted.UpTo, AsOf: asOf(counted), What: bulkEffects[action] + " Jobs that are added or end from now on are not changed.", Back: "/jobs?" + filterValues(filter),
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

// listIDs lists the ids of jobs.
func listIDs(ids []int64) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = "#" + strconv.FormatInt(id, 10)
	}
	return strings.Join(texts, ", ")
}

// asOf returns the time of a count for the form.
func asOf(counted jobstore.Matching) string {
	if counted.AsOf.IsZero() {
		return ""
	}
	return counted.AsOf.UTC().Format(time.RFC3339Nano)
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
		order := jobstore.Order{Action: action, By: auth.RequestOrigin(r, viaPage)}
		act := s.actOnCounted
		if fields.Has("id") {
			act = s.actOnPicked
		}
		changed, err := act(r.Context(), order, filter, fields)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		redirectWithNotice(w, r, "/jobs?"+filterValues(filter, "did", string(action), "n", strconv.Itoa(changed)))
	}
}

// actOnCounted applies an order to the jobs that were counted.
func (s *Pages) actOnCounted(ctx context.Context, order jobstore.Order, filter jobstore.Filter, fields url.Values) (changed int, err error) {
	counted, err := countedBefore(fields)
	if err != nil {
		return 0, err
	}
	if err := cluster.CheckBulk(order.Action, filter); err != nil {
		return 0, err
	}
	done, err := s.ActOnAll(ctx, order, filter, counted, false)
	return done.Changed, err
}

// actOnPicked applies an order to the jobs that were selected.
func (s *Pages) actOnPicked(ctx context.Context, order jobstore.Order, _ jobstore.Filter, fields url.Values) (changed int, err error) {
	ids, err := pickedIDs(fields["id"])
	if err != nil {
		return 0, err
	}
	changes, err := s.JobOps.Act(ctx, order, ids)
	for _, change := range changes {
		if change.Changed() {
			changed++
		}
	}
	auth.NoteAction(ctx, fmt.Sprintf("ids=%v, changed %d", ids, changed))
	return changed, err
}
