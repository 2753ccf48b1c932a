package cronstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrFuture means that a tick is not due yet.
var ErrFuture = errors.New("the tick lies in the future, and fires by itself")

// ErrNotDue means that a cron is not due at an instant.
var ErrNotDue = errors.New("the cron is not due at that instant")

// Trigger is a requested run.
type Trigger struct {
	Cron string
	// At is the tick that runs; zero means now.
	At time.Time
	// Args replace the cron's args; empty means the cron's args.
	Args json.RawMessage
	// By is who requests the run, for the ledger and the event log.
	By string
}

// TickToRun returns the tick of a Trigger at an instant, or ErrFuture or ErrNotDue.
// A cron with the schedule @manual accepts any past instant.
func (c *Cron) TickToRun(at, now time.Time) (time.Time, error) {
	if at.IsZero() {
		return now, nil
	}
	if at.After(now) {
		return at, ErrFuture
	}
	timeline, err := c.Spec.Timeline(c.Name)
	if err != nil {
		return at, err
	}
	if _, due := timeline.At(at); !due && !timeline.Manual() {
		return at, ErrNotDue
	}
	return at, nil
}

// Span is the time to be backfilled, [From, To).
type Span struct {
	Cron     string
	From, To time.Time
	// Limit is the maximum number of ticks that run, the oldest first.
	Limit int
}

// Backfill lists what a backfill would run.
type Backfill struct {
	Cron string `json:"cron"`
	// Ticks are the ticks without a job.
	Ticks []time.Time `json:"ticks"`
	// Left is the number of ticks in the span that do not change: they have a job,
	// wait for one, or are excluded.
	Left int `json:"left"`
	// More is whether the limit truncated the list.
	More bool `json:"more"`
}

// BackfillTicks finds the ticks of a span that did not run. It ignores ticks that
// the leader has not settled yet.
func (s *Store) BackfillTicks(ctx context.Context, span Span) (Backfill, error) {
	plan := Backfill{Cron: span.Cron, Ticks: []time.Time{}}
	cron, err := s.Get(ctx, span.Cron)
	if err == nil && !cron.RemovedAt.IsZero() {
		err = ErrNotFound
	}
	if err != nil {
		return plan, fmt.Errorf("plan a backfill of cron %s: %w", span.Cron, err)
	}
	timeline, err := cron.Spec.Timeline(span.Cron)
	if err != nil {
		return plan, err
	}
	ran, err := s.taken(ctx, span.Cron, span.From, span.To)
	if err != nil {
		return plan, err
	}
	last := span.To.Add(-time.Nanosecond)
	if cron.Watermark.Before(last) {
		last = cron.Watermark
	}
	for due := range timeline.Ticks(span.From.Add(-time.Nanosecond), last) {
		switch {
		case due.SkippedDST || due.Excluded != "" || ran[KeyOf(span.Cron, due.At)]:
			plan.Left++
		case len(plan.Ticks) == span.Limit:
			plan.More = true
			return plan, nil
		default:
			plan.Ticks = append(plan.Ticks, due.At.UTC())
		}
	}
	return plan, nil
}
