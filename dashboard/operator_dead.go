package dashboard

import (
	"context"
	"fmt"
	"net/http"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Dead reads dead letters.
type Dead interface {
	// Groups returns those with the newest death first, Letters at most limit
	// letters by descending id, those below an id (0: all).
	Groups(ctx context.Context, filter jobstore.DeadFilter) ([]jobstore.DeadGroup, error)
	Letters(ctx context.Context, filter jobstore.DeadFilter, before int64, limit int) ([]jobstore.DeadLetter, error)
}

// DeadChanger retries and discards dead letters because somebody asks for it.
type DeadChanger interface {
	// CountDead counts the dead letters that a filter names, ActOnDead changes them
	// and returns how many it changed.
	CountDead(ctx context.Context, filter jobstore.DeadFilter) (jobstore.DeadMatching, error)
	ActOnDead(ctx context.Context, order jobstore.Order, filter jobstore.DeadFilter, counted jobstore.DeadMatching) (int, error)
}

// deadActions are what can be done to dead letters.
var deadActions = []jobstore.Action{jobstore.Retry, jobstore.Discard}

var errNoSuchGroup = &refusal{http.StatusNotFound, "There are no dead letters of that group. They may be retried, discarded or past their retention."}

func (s *server) actOnDead(ctx context.Context, order jobstore.Order, filter jobstore.DeadFilter, dryRun bool) (bulkDocument, error) {
	counted, err := s.DeadChanger.CountDead(ctx, filter)
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
			"That names %d dead letters, and one request changes at most %d. Narrow it, or use forge dead %s.", counted.Jobs, maxBulk, order.Action)}
	}
	defer s.dead.forget()
	done.Changed, err = s.DeadChanger.ActOnDead(ctx, order, filter, counted)
	noteDown(ctx, fmt.Sprintf("ids=%v group=%s kind=%s, changed %d", filter.IDs, filter.Group, filter.Kind, done.Changed))
	if err != nil && done.Changed > 0 {
		err = &refusal{http.StatusServiceUnavailable, fmt.Sprintf("It broke off after %d jobs. The same again goes on from there.", done.Changed)}
	}
	return done, err
}

func (s *server) allDead(ctx context.Context) ([]jobstore.DeadGroup, error) {
	return s.Source.Dead.Groups(ctx, jobstore.DeadFilter{})
}
