package crons

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
)

// backfillBatch is how many ticks a backfill runs in one transaction, during
// which the leader waits for the cron.
const backfillBatch = 100

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
func PlanBackfill(ctx context.Context, db cronstore.Queryer, span Span) (Backfill, error) {
	plan := Backfill{Cron: span.Cron, Ticks: []time.Time{}}
	cron, err := cronstore.Get(ctx, db, span.Cron)
	if err == nil && !cron.RemovedAt.IsZero() {
		err = cronstore.ErrNotFound
	}
	if err != nil {
		return plan, fmt.Errorf("plan a backfill of cron %s: %w", span.Cron, err)
	}
	timeline, err := cron.Spec.Timeline(span.Cron)
	if err != nil {
		return plan, err
	}
	taken, err := cronstore.Taken(ctx, db, span.Cron, span.From, span.To)
	if err != nil {
		return plan, err
	}
	last := span.To.Add(-time.Nanosecond)
	if cron.Watermark.Before(last) {
		last = cron.Watermark
	}
	for due := range timeline.Ticks(span.From.Add(-time.Nanosecond), last) {
		switch {
		case due.SkippedDST || due.Excluded != "" || taken[cronstore.KeyOf(span.Cron, due.At)]:
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

// RunBackfill runs the ticks of a plan, in transactions of bounded size: what is
// done when it is interrupted stays, and the same backfill again goes on from
// there. It returns how many ran; a tick that somebody else has run meanwhile
// is left alone. report is told after each transaction how many are settled.
func (m Manual) RunBackfill(ctx context.Context, plan Backfill, by string, report func(settled int)) (int, error) {
	ran := 0
	for start := 0; start < len(plan.Ticks); start += backfillBatch {
		end := min(start+backfillBatch, len(plan.Ticks))
		n, err := m.backfill(ctx, plan.Cron, plan.Ticks[start:end], by)
		if err != nil {
			return ran, fmt.Errorf("backfill cron %s: %w", plan.Cron, err)
		}
		ran += n
		report(end)
	}
	return ran, nil
}

// backfill is one transaction.
func (m Manual) backfill(ctx context.Context, name string, ticks []time.Time, by string) (int, error) {
	var rows []cronstore.Tick
	err := pgx.BeginFunc(ctx, m.DB, func(tx pgx.Tx) error {
		cron, _, err := cronstore.LockConfigured(ctx, tx, name)
		if err != nil {
			return err
		}
		for _, at := range ticks {
			row, err := cronstore.Claim(ctx, tx, &cron, at, cronstore.Backfilled, "Backfilled by "+by)
			switch {
			case errors.Is(err, cronstore.ErrTaken):
			case err != nil:
				return err
			default:
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			return nil
		}
		if err := m.insert(ctx, tx, &cron, rows); err != nil {
			return err
		}
		return eventstore.Append(ctx, tx, eventstore.Event{Type: eventstore.CronBackfilled}, map[string]any{
			"cron": name, "ticks": len(rows), "first": rows[0].Tick.UTC(), "last": rows[len(rows)-1].Tick.UTC(), "by": by,
		})
	})
	return len(rows), err
}
