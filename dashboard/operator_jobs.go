package dashboard

import (
	"context"
	"fmt"
	"net/http"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// JobOps changes jobs on behalf of an operator.
type JobOps interface {
	// Act returns the result for each job, in the order of the ids.
	Act(ctx context.Context, order jobstore.Order, ids []int64) ([]jobstore.Change, error)
	// CountMatching counts the jobs that match a filter and that the action can change.
	// ActOnAll changes them and returns how many it changed.
	CountMatching(ctx context.Context, action jobstore.Action, filter jobstore.Filter) (jobstore.Matching, error)
	ActOnAll(ctx context.Context, order jobstore.Order, filter jobstore.Filter, counted jobstore.Matching) (int, error)
}

// pastTense is the past tense of each action.
var pastTense = map[jobstore.Action]string{jobstore.Cancel: "cancelled", jobstore.Retry: "retried", jobstore.Discard: "discarded"}

var errNoSuchJob = &refusal{http.StatusNotFound, "There is no such job."}

// act applies an action to one job.
func (s *clusterState) act(ctx context.Context, order jobstore.Order, text string) (jobstore.Change, error) {
	id, ok := jobID(text)
	if !ok {
		return jobstore.Change{}, errNoSuchJob
	}
	changes, err := s.JobOps.Act(ctx, order, []int64{id})
	switch {
	case err != nil:
		return jobstore.Change{}, err
	case changes[0].Missing:
		return changes[0], errNoSuchJob
	case changes[0].Refused != "":
		return changes[0], &refusal{http.StatusConflict, fmt.Sprintf("The job cannot be %s: %s.", pastTense[order.Action], changes[0].Refused)}
	}
	return changes[0], nil
}

// bulkDocument is the result of an action on many jobs.
type bulkDocument struct {
	Action  jobstore.Action `json:"action"`
	Jobs    int64           `json:"jobs"`
	Changed int             `json:"changed"`
	// UpTo is the highest id that was counted. A request with this value changes no later
	// jobs.
	UpTo   int64 `json:"up_to,omitempty"`
	DryRun bool  `json:"dry_run"`
}

// actOnAll applies an action to the jobs that match a filter. It leaves jobs with ids above
// upTo alone; if upTo is 0, jobs above the highest counted id.
func (s *clusterState) actOnAll(ctx context.Context, order jobstore.Order, filter jobstore.Filter, upTo int64, dryRun bool) (bulkDocument, error) {
	count := s.countBulk
	if dryRun {
		count = s.JobOps.CountMatching
	}
	counted, err := count(ctx, order.Action, filter)
	done := bulkDocument{Action: order.Action, Jobs: counted.Jobs, UpTo: counted.UpTo, DryRun: dryRun}
	if err != nil || dryRun || counted.Jobs == 0 {
		return done, err
	}
	if err := checkBulkCount(order.Action, counted); err != nil {
		return done, err
	}
	if upTo != 0 {
		counted.UpTo = min(counted.UpTo, upTo)
		done.UpTo = counted.UpTo
	}
	done.Changed, err = s.JobOps.ActOnAll(ctx, order, filter, counted)
	noteAction(ctx, fmt.Sprintf("state=%s kind=%s queue=%s cron=%s, changed %d", filter.State, filter.Kind, filter.Queue, filter.Cron, done.Changed))
	if err != nil && done.Changed > 0 {
		err = &refusal{http.StatusServiceUnavailable, fmt.Sprintf("The action stopped after %d jobs. Repeat the request to continue.", done.Changed)}
	}
	return done, err
}
