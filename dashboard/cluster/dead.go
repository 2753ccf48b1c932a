package cluster

import (
	"context"
	"fmt"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// DeadLetterOps retries and discards dead letters on behalf of an operator.
type DeadLetterOps interface {
	// CountDead counts the dead letters that match a filter, among those that were counted
	// before. ActOnDead changes them and returns how many it changed.
	CountDead(ctx context.Context, filter jobstore.DeadFilter, before jobstore.Matching) (jobstore.Matching, error)
	ActOnDead(ctx context.Context, order jobstore.Order, filter jobstore.DeadFilter, counted jobstore.Matching) (int, error)
}

// DeadActions are the actions on dead letters.
var DeadActions = []jobstore.Action{jobstore.Retry, jobstore.Discard}

// ErrNoSuchGroup answers a request for a group without dead letters.
var ErrNoSuchGroup = web.Refuse(http.StatusNotFound, "There are no dead letters of that group. They may have been retried, discarded or removed after their retention.")

// ActOnDead applies an action to the dead letters that match a filter, as ActOnAll does.
func (s *Cluster) ActOnDead(ctx context.Context, order jobstore.Order, filter jobstore.DeadFilter, before jobstore.Matching, dryRun bool) (BulkDocument, error) {
	counted, err := s.DeadLetterOps.CountDead(ctx, filter, before)
	done := BulkDocument{Action: order.Action, Jobs: counted.Jobs, DryRun: dryRun}
	switch {
	case err != nil:
		return done, err
	case counted.Jobs == 0 && filter.Group != "":
		return done, ErrNoSuchGroup
	case dryRun:
		return done, nil
	case counted.Jobs > MaxBulk:
		return done, web.Refuse(http.StatusUnprocessableEntity, fmt.Sprintf(
			"The filter matches %d dead letters, but one request changes at most %d. Narrow the filter, or use forge dead %s.", counted.Jobs, MaxBulk, order.Action))

	}
	defer s.Dead.Forget(ctx)
	done.Changed, err = s.DeadLetterOps.ActOnDead(ctx, order, filter, counted.Among(before))
	where := ""
	if filter.Where != nil {
		where = " filter=" + filter.Where.String()
	}
	auth.NoteAction(ctx, fmt.Sprintf("ids=%v group=%s kind=%s error=%q older_than=%s newer_than=%s%s, changed %d",
		filter.IDs, filter.Group, filter.Kind, filter.Error, filter.OlderThan, filter.NewerThan, where, done.Changed))
	if err != nil && done.Changed > 0 {
		err = web.Refuse(http.StatusServiceUnavailable, fmt.Sprintf("The action stopped after %d jobs. Repeat the request to continue.", done.Changed))
	}
	return done, err
}

func (s *Cluster) allDead(ctx context.Context) ([]jobstore.DeadGroup, error) {
	return s.Source.Dead.DeadGroups(ctx, jobstore.DeadFilter{})
}
