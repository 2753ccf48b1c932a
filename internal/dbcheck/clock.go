package dbcheck

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The timestamps that the cluster writes regularly by the database's clock: totals
// at each scrape interval, events and terms at each change. Each is the end of an
// index.
const clockSQL = `
SELECT now, greatest(extract(epoch FROM newest - now), 0)::float8
FROM (
    SELECT clock_timestamp() AS now, greatest(
        (SELECT max(at) FROM forge_metrics_cluster),
        (SELECT max(at) FROM forge_events),
        (SELECT max(acquired_at) FROM forge_leader_history)) AS newest
) AS clock`

// Clock is the database's clock.
type Clock struct {
	Now time.Time
	// SetBack is how far the newest recorded timestamp is ahead of the clock: the
	// clock was set back by at least that much.
	SetBack time.Duration
}

// ReadClock reads the database's clock.
func ReadClock(ctx context.Context, db Queryer) (Clock, error) {
	rows, err := db.Query(ctx, clockSQL)
	if err != nil {
		return Clock{}, fmt.Errorf("read the database's clock: %w", err)
	}
	clock, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Clock, error) {
		var c Clock
		var back *float64
		err := row.Scan(&c.Now, &back)
		if back != nil {
			c.SetBack = time.Duration(*back * float64(time.Second))
		}
		return c, err
	})
	if err != nil {
		return Clock{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return clock, nil
}
