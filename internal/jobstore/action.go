package jobstore

import (
	"fmt"
	"slices"

	"github.com/forge-scheduler/forge/internal/eventstore"
)

// Action is an action on an existing job.
type Action string

// Cancel ends a job for good, even if it is running. Retry makes a job available
// again, even if it has ended. Discard discards a waiting job.
const (
	Cancel  Action = "cancel"
	Retry   Action = "retry"
	Discard Action = "discard"
)

// Actions are all actions, in display order.
var Actions = []Action{Retry, Cancel, Discard}

// States of a job, as River defines them.
const (
	stateAvailable = "available"
	stateRunning   = "running"
	stateCompleted = "completed"
	stateDiscarded = "discarded"
)

var (
	waitingStates  = []string{stateAvailable, "pending", "retryable", "scheduled"}
	finishedStates = []string{"cancelled", "completed", stateDiscarded}
)

// Finished reports whether a job in this state has ended for good.
func Finished(state string) bool { return slices.Contains(finishedStates, state) }

// Order is an action and its requester.
type Order struct {
	Action Action
	// By is who requests the action, for the event log.
	By string
	// Progress, if not nil, is called by ActOnAll and ActOnDead after each transaction
	// with the number of jobs processed.
	Progress func(done int)

	// matched is how many jobs were counted, and part the number of the next event, from 1; both are
	// 0 for jobs that are given by their ids.
	matched int64
	part    int
}

// Change is the result of an order for one job.
type Change struct {
	ID    int64  `json:"id"`
	Kind  string `json:"kind,omitempty"`
	Queue string `json:"queue,omitempty"`
	// Was is the state before, State the state after. A running job that is
	// cancelled stays running until its node has ended it.
	Was   string `json:"was,omitempty"`
	State string `json:"state,omitempty"`
	// Refused is why the action was rejected.
	Refused string `json:"refused,omitempty"`
	// Missing is whether the job does not exist.
	Missing bool `json:"missing,omitempty"`
}

// Changed reports whether the order was carried out.
func (c Change) Changed() bool { return c.Refused == "" && !c.Missing }

// Refuses returns why the action cannot be taken on a job in this state, or "".
func (a Action) Refuses(state string) string {
	switch {
	case a == Retry && (state == stateRunning || state == stateAvailable):
		return "it is " + state + " already"
	case a == Discard && state == stateRunning:
		return "it is running; cancel it first"
	case a != Retry && Finished(state):
		return "it is " + state + " already"
	default:
		return ""
	}
}

// statesOf returns the states of the filter whose jobs the action can change.
// Without states in the filter, a retry in bulk selects only discarded jobs, and
// not completed jobs.
func (a Action) statesOf(filter Filter) []string {
	states := []string{filter.State}
	switch {
	case filter.State != "":
	case len(statesIn(filter.Where)) > 0:
		states = statesIn(filter.Where)
	case a == Retry:
		states = []string{stateDiscarded}
	default:
		states = append([]string{stateRunning}, waitingStates...)
	}
	return slices.DeleteFunc(states, func(state string) bool { return a.Refuses(state) != "" })
}

func (a Action) event() string {
	return map[Action]string{Cancel: eventstore.JobCancelled, Retry: eventstore.JobRetried, Discard: eventstore.JobDiscarded}[a]
}

// decide determines for each job whether the action can be taken.
func decide(action Action, found []locked) []Change {
	changes := make([]Change, len(found))
	granted := map[string]int64{} // unique keys that jobs of this batch take
	for i, job := range found {
		changes[i] = job.Change
		changes[i].Refused = action.Refuses(job.Was)
		if action != Retry || changes[i].Refused != "" || len(job.uniqueKey) == 0 {
			continue
		}
		switch first, taken := granted[string(job.uniqueKey)]; {
		case job.rival:
			changes[i].Refused = "another job holds its unique key"
		case taken:
			changes[i].Refused = fmt.Sprintf("job %d, which has the same unique key, is retried", first)
		default:
			granted[string(job.uniqueKey)] = job.ID
		}
	}
	return changes
}

// shownIDs bounds the ids in one event.
const shownIDs = 20

// entry returns the event data of an order.
func entry(order Order, filter *Filter, ids []int64) map[string]any {
	data := map[string]any{"by": order.By, "jobs": len(ids), "ids": ids[:min(len(ids), shownIDs)]}
	switch {
	case order.part > 1:
		data[eventstore.PartKey] = order.part
	case order.matched > int64(len(ids)):
		data[eventstore.MatchedKey] = order.matched
	}
	if filter == nil {
		return data
	}
	named := map[string]string{}
	for key, value := range map[string]string{"state": filter.State, "kind": filter.Kind, "queue": filter.Queue, "cron": filter.Cron, "filter": filter.Where.String()} {
		if value != "" {
			named[key] = value
		}
	}
	data["filter"] = named
	return data
}
