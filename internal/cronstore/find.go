package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// A tick has its own row or is in a range; its own row comes first. Ranges of one
// cron do not overlap, so only the newest range that began before the tick can
// contain it.
const findTickSQL = `
SELECT ` + tickColumns + `
FROM (
    (SELECT * FROM forge_cron_ticks WHERE cron = $1 AND tick = $2)
    UNION ALL
    (SELECT * FROM forge_cron_ticks WHERE cron = $1 AND tick < $2 AND last_tick IS NOT NULL ORDER BY tick DESC LIMIT 1)
) AS t
WHERE t.tick = $2 OR t.last_tick >= $2
ORDER BY t.tick DESC
LIMIT 1`

// FindTick returns the ledger row that contains a tick, alone or in a range, or
// ErrNotFound. It does not check whether the cron was due at that instant of a
// range.
func (s *Store) FindTick(ctx context.Context, cron string, tick time.Time) (Tick, error) {
	found, err := postgres.Collect(ctx, s.db, scanTick, findTickSQL, cron, tick)
	if err != nil {
		return Tick{}, fmt.Errorf("find a tick of %s: %w", cron, err)
	}
	if len(found) == 0 {
		return Tick{}, fmt.Errorf("tick %s of cron %s: %w", tick.UTC().Format(time.RFC3339Nano), cron, ErrNotFound)
	}
	return found[0], nil
}

// QueueNow adds a statement to a batch that sets now to the database's clock, which
// determines what is due.
func QueueNow(batch *pgx.Batch, now *time.Time) {
	batch.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(now) })
}

// Now reads the database's clock, which determines what is due.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	times, err := postgres.Collect(ctx, s.db, pgx.RowTo[time.Time], clockSQL)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return times[0], nil
}
