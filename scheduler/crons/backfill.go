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

// Backfill runs the ticks that BackfillTicks of cronstore returned, in transactions of
// bounded size. The transactions that have committed survive an interruption, and the
// same backfill can be run again to continue. Backfill returns the number of ticks that
// ran. It leaves out ticks that were recorded in the meantime. It calls progress, unless
// it is nil, after each transaction with the number of ticks done.
func (m Manual) Backfill(ctx context.Context, b cronstore.Backfill, by string, progress func(done int)) (int, error) {
	ran := 0
	for start := 0; start < len(b.Ticks); start += backfillBatch {
		end := min(start+backfillBatch, len(b.Ticks))
		n, err := m.backfill(ctx, b.Cron, b.Ticks[start:end], by)
		if err != nil {
			return ran, fmt.Errorf("backfill cron %s: %w", b.Cron, err)
		}
		ran += n
		if progress != nil {
			progress(end)
		}
	}
	return ran, nil
}

// backfill runs some ticks in one transaction.
func (m Manual) backfill(ctx context.Context, name string, ticks []time.Time, by string) (int, error) {
	var rows []cronstore.Tick
	err := pgx.BeginFunc(ctx, m.DB, func(tx pgx.Tx) error {
		cron, _, err := cronstore.New(tx).LockConfigured(ctx, name)
		if err != nil {
			return err
		}
		for _, at := range ticks {
			row, err := cronstore.New(tx).Claim(ctx, &cron, at, cronstore.Backfilled, "Backfilled by "+by)
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
