package dashboard

import (
	"context"
	"fmt"
	"net/http"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// DeadLetters reads dead letters.
type DeadLetters interface {
	// DeadGroups returns the groups, newest death first. DeadLetters returns at most limit letters
	// by descending id, only those with ids below before unless before is 0.
	DeadGroups(ctx context.Context, filter jobstore.DeadFilter) ([]jobstore.DeadGroup, error)
	DeadLetters(ctx context.Context, filter jobstore.DeadFilter, before int64, limit int) ([]jobstore.DeadLetter, error)
}

// DeadLetterOps retries and discards dead letters on behalf of an operator.
type DeadLetterOps interface {
	// CountDead counts the dead letters that match a filter. ActOnDead changes them and
	// returns how many it changed.
	CountDead(ctx context.Context, filter jobstore.DeadFilter) (jobstore.DeadMatching, error)
	ActOnDead(ctx context.Context, order jobstore.Order, filter jobstore.DeadFilter, counted jobstore.DeadMatching) (int, error)
}

// deadActions are the actions on dead letters.
var deadActions = []jobstore.Action{jobstore.Retry, jobstore.Discard}

var errNoSuchGroup = &refusal{http.StatusNotFound, "There are no dead letters of that group. They may have been retried, discarded or removed after their retention."}

func (s *clusterState) actOnDead(ctx context.Context, order jobstore.Order, filter jobstore.DeadFilter, dryRun bool) (bulkDocument, error) {
	counted, err := s.DeadLetterOps.CountDead(ctx, filter)
	done := bulkDocument{Action: order.Action, Jobs: counted.Jobs, DryRun: dryRun}
	switch {
	case err != nil:
		return done, err
	case counted.Jobs == 0 && filter.Group != "":
		return done, errNoSuchGroup
	case dryRun:
		return done, nil
	case counted.Jobs > maxBulk:
		return done, &refusal{http.StatusUnprocessableEntity, fmt.Sprintf(
			"The filter matches %d dead letters, but one request changes at most %d. Narrow the filter, or use forge dead %s.", counted.Jobs, maxBulk, order.Action)}
	}
	defer s.dead.forget()
	done.Changed, err = s.DeadLetterOps.ActOnDead(ctx, order, filter, counted)
	noteAction(ctx, fmt.Sprintf("ids=%v group=%s kind=%s error=%q older_than=%s newer_than=%s, changed %d",
		filter.IDs, filter.Group, filter.Kind, filter.Error, filter.OlderThan, filter.NewerThan, done.Changed))
	if err != nil && done.Changed > 0 {
		err = &refusal{http.StatusServiceUnavailable, fmt.Sprintf("The action stopped after %d jobs. Repeat the request to continue.", done.Changed)}
	}
	return done, err
}

func (s *clusterState) allDead(ctx context.Context) ([]jobstore.DeadGroup, error) {
	return s.Source.Dead.DeadGroups(ctx, jobstore.DeadFilter{})
}
