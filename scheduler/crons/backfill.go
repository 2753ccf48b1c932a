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

// backfillBatch is the number of ticks that a backfill runs in one transaction. The
// leader waits for the cron's row during that transaction.
const backfillBatch = 100

// RunBackfill runs the ticks of a plan in transactions of bounded size. The transactions
// that have committed survive an interruption, and the same backfill can be run again to
// continue. RunBackfill returns the number of ticks that ran. It leaves out ticks that
// were recorded in the meantime. It calls report after each transaction with the number
// of ticks done.
func (m Manual) RunBackfill(ctx context.Context, plan cronstore.Backfill, by string, report func(settled int)) (int, error) {
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

// backfill runs some ticks in one transaction.
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
