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

// Holder holds crons and lets them go on.
type Holder interface {
	// Pause and Resume return the cron and whether that changed anything, and
	// cronstore.ErrNotFound for one that is not configured.
	Pause(ctx context.Context, cron, by string) (cronstore.Cron, bool, error)
	Resume(ctx context.Context, cron, by string) (cronstore.Cron, bool, error)
}

// Runner runs ticks because somebody asks for it.
type Runner interface {
	// Trigger returns the tick's row, and cronstore's ErrNotFound, ErrTaken (with
	// the row), ErrFuture or ErrNotDue when it refuses.
	Trigger(ctx context.Context, t cronstore.Trigger) (cronstore.Tick, error)
	// PlanBackfill finds the ticks that a backfill would run, RunBackfill runs
	// them and returns how many it ran.
	PlanBackfill(ctx context.Context, span cronstore.Span) (cronstore.Backfill, error)
	RunBackfill(ctx context.Context, plan cronstore.Backfill, by string) (int, error)
}

const (
	defaultBackfill = 1000
	// maxBackfill is the most ticks that one request runs: it has to end.
	maxBackfill = 10_000
	maxSpan     = 366 * 24 * time.Hour
)

// newSpan checks what was asked for.
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

// refusal is an answer that the reader may be shown.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return r.detail }

var (
	errNoSuchCron = &refusal{http.StatusNotFound, "There is no such cron."}
	errWaiting    = &refusal{http.StatusConflict, "The tick waits for its turn already."}
)

// refuse turns what an operation says into an answer, and leaves trouble as it
// is.
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
		return wrongFields(wrongField("at", "is no instant at which the cron is due"))
	default:
		return err
	}
}

func (s *server) trigger(ctx context.Context, t cronstore.Trigger) (cronstore.Tick, error) {
	row, err := s.Runner.Trigger(ctx, t)
	if errors.Is(err, cronstore.ErrTaken) {
		return row, taken(row)
	}
	return row, refuse(err)
}

func taken(row cronstore.Tick) error {
	if row.JobID == 0 {
		return errWaiting
	}
	return &refusal{http.StatusConflict, fmt.Sprintf("The tick has job %d (%s), and a tick runs once.", row.JobID, row.Verdict)}
}

// hold pauses or resumes.
func (s *server) hold(ctx context.Context, cron, by string, pause bool) (cronstore.Cron, bool, error) {
	turn := s.Holder.Resume
	if pause {
		turn = s.Holder.Pause
	}
	changed, did, err := turn(ctx, cron, by)
	return changed, did, refuse(err)
}

// backfill plans, and runs the plan unless it is only to be seen.
func (s *server) backfill(ctx context.Context, span cronstore.Span, by string, dryRun bool) (plan cronstore.Backfill, ran int, err error) {
	if plan, err = s.Runner.PlanBackfill(ctx, span); err == nil && !dryRun {
		ran, err = s.Runner.RunBackfill(ctx, plan, by)
	}
	return plan, ran, refuse(err)
}

// whoAsks names the other end of a request, for the ledger and the diary.
func whoAsks(r *http.Request, way string) string {
	from := way + " from " + addressOf(r)
	if name := callerOf(r.Context()).Name; name != "" {
		return name + " through " + from
	}
	return from
}
