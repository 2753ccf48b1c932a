package cronstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrFuture says that a tick has not come yet.
var ErrFuture = errors.New("the tick lies in the future, and fires by itself")

// ErrNotDue says that a cron is not due at an instant.
var ErrNotDue = errors.New("the cron is not due at that instant")

// Trigger is a run that somebody asks for.
type Trigger struct {
	Cron string
	// At is the tick that runs; zero is now.
	At time.Time
	// Args replace the cron's own; empty means those.
	Args json.RawMessage
	// By says who asks, for the ledger and the diary.
	By string
}

// TickToRun returns the tick that a Trigger at an instant means, or ErrFuture or
// ErrNotDue. A cron that is only triggered may be given any instant of the past.
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

// Span is a stretch of the past to be backfilled, [From, To).
type Span struct {
	Cron     string
	From, To time.Time
	// Limit is the most ticks that run, the oldest first.
	Limit int
}

// Backfill is what a backfill would run.
type Backfill struct {
	Cron string `json:"cron"`
	// Ticks are those that have no job.
	Ticks []time.Time `json:"ticks"`
	// Left is how many ticks between them stay as they are: they have their job,
	// wait for it, or are excluded.
	Left int `json:"left"`
	// More says that the limit cut the list off.
	More bool `json:"more"`
}

// PlanBackfill finds the ticks of a span that were not run. Those that the
// leader has not settled yet are left to it.
func PlanBackfill(ctx context.Context, db Queryer, span Span) (Backfill, error) {
	plan := Backfill{Cron: span.Cron, Ticks: []time.Time{}}
	cron, err := Get(ctx, db, span.Cron)
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
	ran, err := taken(ctx, db, span.Cron, span.From, span.To)
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
