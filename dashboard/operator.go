package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// CronOps pauses and resumes crons, and finds the ticks that a backfill would run.
type CronOps interface {
	// Pause and Resume return the cron and whether its state changed. They return
	// cronstore.ErrNotFound for a cron that is not configured.
	Pause(ctx context.Context, cron, by string) (cronstore.Cron, bool, error)
	Resume(ctx context.Context, cron, by string) (cronstore.Cron, bool, error)
	BackfillTicks(ctx context.Context, span cronstore.Span) (cronstore.Backfill, error)
}

// CronRunner runs ticks on behalf of an operator.
type CronRunner interface {
	// Trigger returns the row of the tick. It returns ErrNotFound, ErrTaken (with the row),
	// ErrFuture or ErrNotDue of cronstore if it refuses.
	Trigger(ctx context.Context, t cronstore.Trigger) (cronstore.Tick, error)
	// Backfill runs the ticks that BackfillTicks returned, and returns how many it ran.
	// progress may be nil.
	Backfill(ctx context.Context, b cronstore.Backfill, by string, progress func(done int)) (int, error)
}

const (
	defaultBackfill = 1000
	// maxBackfill is the maximum number of ticks that one request runs. It bounds the
	// duration of the request.
	maxBackfill = 10_000
	maxSpan     = 366 * 24 * time.Hour
)

// newSpan checks the arguments of a backfill.
func newSpan(cron string, from, to time.Time, limit int) (cronstore.Span, error) {
	span := cronstore.Span{Cron: cron, From: from, To: to, Limit: limit}
	if limit == 0 {
		span.Limit = defaultBackfill
	}
	var wrong []fieldError
	if from.IsZero() {
		wrong = append(wrong, wrongField("from", "is missing"))
	}
	switch {
	case to.IsZero():
		wrong = append(wrong, wrongField("to", "is missing"))
	case from.IsZero():
	case !to.After(from):
		wrong = append(wrong, wrongField("to", "must be after from"))
	case to.Sub(from) > maxSpan:
		wrong = append(wrong, wrongField("to", "must be at most 366 days after from"))
	}
	if span.Limit < 1 || span.Limit > maxBackfill {
		wrong = append(wrong, wrongField("limit", fmt.Sprintf("must be from 1 to %d (got %d)", maxBackfill, limit)))
	}
	return span, wrongFields(wrong...)
}

// refusal is an error whose detail is shown to the caller.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return r.detail }

var (
	errNoSuchCron = &refusal{http.StatusNotFound, "There is no such cron."}
	errWaiting    = &refusal{http.StatusConflict, "The tick is queued already."}
)

// refuse converts an error of an operation to an answer. It returns unexpected errors
// unchanged.
func refuse(err error) error {
	if wrong, _ := wrongArgs(err); wrong != nil {
		return invalidError(wrong)
	}
	switch {
	case errors.Is(err, cronstore.ErrNotFound):
		return errNoSuchCron
	case errors.Is(err, jobstore.ErrNotFound):
		return errNoSuchJob
	case errors.Is(err, cronstore.ErrFuture):
		return wrongFields(wrongField("at", "lies in the future, where the cron fires by itself"))
	case errors.Is(err, cronstore.ErrNotDue):
		return wrongFields(wrongField("at", "must be a due time of the cron"))
	default:
		return err
	}
}

func (s *clusterState) trigger(ctx context.Context, t cronstore.Trigger) (cronstore.Tick, error) {
	row, err := s.CronRunner.Trigger(ctx, t)
	if errors.Is(err, cronstore.ErrTaken) {
		return row, refuseTaken(row)
	}
	return row, refuse(err)
}

func refuseTaken(row cronstore.Tick) error {
	if row.JobID == 0 {
		return errWaiting
	}
	return &refusal{http.StatusConflict, fmt.Sprintf("The tick already has job %d (%s), and a tick runs once.", row.JobID, row.Verdict)}
}

// setCronPaused pauses or resumes a cron.
func (s *clusterState) setCronPaused(ctx context.Context, cron, by string, pause bool) (cronstore.Cron, bool, error) {
	change := s.CronOps.Resume
	if pause {
		change = s.CronOps.Pause
	}
	row, changed, err := change(ctx, cron, by)
	return row, changed, refuse(err)
}

// backfill finds the ticks of a backfill and, unless dryRun is set, runs them.
func (s *clusterState) backfill(ctx context.Context, span cronstore.Span, by string, dryRun bool) (b cronstore.Backfill, ran int, err error) {
	if b, err = s.CronOps.BackfillTicks(ctx, span); err == nil && !dryRun {
		ran, err = s.CronRunner.Backfill(ctx, b, by, nil)
	}
	return b, ran, refuse(err)
}

// requestOrigin describes the origin of a request, for the ledger and the event log.
func requestOrigin(r *http.Request, way string) string {
	from := way + " from " + addressOf(r)
	if name := callerOf(r.Context()).Name; name != "" {
		return name + " through " + from
	}
	return from
}
