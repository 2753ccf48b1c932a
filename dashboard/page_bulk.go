package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// errNothingToChange is for pages of a server that only shows.
var errNothingToChange = errors.New("nothing can be changed from here")

// bulkFilter reads what names the jobs of an order on many; page and limit are of
// the list alone.
func bulkFilter(get func(key string) string) jobstore.Filter {
	return jobstore.Filter{State: get("state"), Kind: get("kind"), Queue: get("queue"), Cron: get("cron")}
}

func filterValues(filter jobstore.Filter, more ...string) string {
	return values(append([]string{"state", filter.State, "kind", filter.Kind, "queue", filter.Queue, "cron", filter.Cron}, more...)...)
}

// bulkActs are what can be done to all jobs that the list's filter names.
func (s *server) bulkActs(ask *request, filter jobstore.Filter) []act {
	filter = jobstore.Filter{State: filter.State, Kind: filter.Kind, Queue: filter.Queue, Cron: filter.Cron}
	var buttons []act
	for _, action := range jobstore.Actions {
		if s.Changer != nil && ask.may(operator) && checkBulk(action, filter) == nil {
			buttons = append(buttons, act{"/bulk/jobs/" + string(action) + "?" + filterValues(filter), title(action) + " all", icons[action]})
		}
	}
	return buttons
}

// bulkNotice says what the form that led here has done.
func bulkNotice(ask *request) string {
	n, err := strconv.Atoi(ask.values.Get("n"))
	did := past[jobstore.Action(ask.values.Get("did"))]
	if err != nil || did == "" {
		return ""
	}
	return plural(n, "job was ", "jobs were ") + did + "."
}

// bulkBody asks whether it is really meant, of jobs that were counted.
type bulkBody struct {
	base
	Action, Title, Icon string
	Filter              jobstore.Filter
	Named               []fact
	// Jobs are so many, or more than Over when that is not 0.
	Jobs, Over int64
	// UpTo is the newest of them: those that come later are not meant.
	UpTo int64
	// What says what happens; Refused why it cannot.
	What, Refused string
	Back          string
}

// loadBulk is the page that asks before anything is done to many jobs.
func loadBulk(action jobstore.Action) func(*server, context.Context, *request) (body, error) {
	return func(s *server, ctx context.Context, ask *request) (body, error) {
		filter := bulkFilter(ask.values.Get)
		err := checkBulk(action, filter)
		if s.Changer == nil {
			err = errNothingToChange
		}
		if err != nil {
			return nil, &requestError{err}
		}
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		counted, err := s.countBulk(ctx, action, filter)
		if err != nil {
			return nil, err
		}
		b := &bulkBody{
			base:   base{name: title(action) + " jobs", beat: s.pulseOf(facts)},
			Action: string(action), Title: title(action), Icon: icons[action], Filter: filter, Named: namedBy(action, filter),
			Jobs: counted.Jobs, UpTo: counted.UpTo, What: bulkEffects[action], Back: "/jobs?" + filterValues(filter),
		}
		if err := bulkBounds(action, counted); err != nil {
			b.Refused = err.Error()
		}
		if counted.Jobs > maxBulk {
			b.Over = maxBulk
		}
		return b, nil
	}
}

// countBulk counts no further than one request could go.
func (s *server) countBulk(ctx context.Context, action jobstore.Action, filter jobstore.Filter) (jobstore.Matching, error) {
	filter.Limit = maxBulk + 1
	return s.Changer.CountMatching(ctx, action, filter)
}

// namedBy puts a filter into words. A retry that names no state means the discarded
// jobs, as it does for the command.
func namedBy(action jobstore.Action, filter jobstore.Filter) []fact {
	state := filter.State
	if state == "" && action == jobstore.Retry {
		state = "discarded"
	}
	return withoutEmpty([]fact{{"State", state}, {"Kind", filter.Kind}, {"Queue", filter.Queue}, {"Cron", filter.Cron}})
}

// bulkEffects say what an action does to many jobs.
var bulkEffects = map[jobstore.Action]string{
	jobstore.Cancel:  "Those that wait are not run, now or later. Those that run are told to stop; what they have done so far stays done.",
	jobstore.Retry:   "They run now, from the beginning. What their earlier attempts have done stays done.",
	jobstore.Discard: "They are given up as if their last attempt had failed: who is told of failed runs is told.",
}

// bulkBounds refuses what names no job, or more than one request can change.
func bulkBounds(action jobstore.Action, counted jobstore.Matching) error {
	switch {
	case counted.Jobs == 0:
		return &refusal{http.StatusConflict, "The filter names no job that can be " + past[action] + "."}
	case counted.Jobs > maxBulk:
		return &refusal{http.StatusUnprocessableEntity, fmt.Sprintf(
			"The filter names more than %d jobs, which is the most that one request changes. Narrow it, or use forge job %s.", maxBulk, action)}
	default:
		return nil
	}
}

// formActOnAll does it once it was confirmed, to the jobs that were counted then.
func (s *server) formActOnAll(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.form(w, r)
		if !ok {
			return
		}
		filter := bulkFilter(fields.Get)
		upTo, err := strconv.ParseInt(fields.Get("up_to"), 10, 64)
		if err != nil || upTo < 1 {
			s.answer(w, r, &refusal{http.StatusBadRequest, "The form lacks the jobs that were counted."})
			return
		}
		if err := checkBulk(action, filter); err != nil {
			s.answer(w, r, err)
			return
		}
		done, err := s.actOnAll(r.Context(), jobstore.Order{Action: action, By: whoAsks(r, viaPage)}, filter, upTo, false)
		if err != nil {
			s.answer(w, r, err)
			return
		}
		http.Redirect(w, r, "/jobs?"+filterValues(filter, "did", string(action), "n", strconv.Itoa(done.Changed)), http.StatusSeeOther)
	}
}
