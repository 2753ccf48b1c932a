package postgres

import (
	"context"
	"fmt"
	"time"
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

const nowSQL = `SELECT clock_timestamp()`

// Now returns the time of the database's clock.
func Now(ctx context.Context, db DB) (now time.Time, err error) {
	if err := db.QueryRow(ctx, nowSQL).Scan(&now); err != nil {
		return now, fmt.Errorf("read the database's clock: %w", err)
	}
	return now, nil
}

// Clock is the database's clock.
type Clock struct {
	Now time.Time
	// SetBack is how far the newest recorded timestamp is ahead of the clock: the
	// clock was set back by at least that much.
	SetBack time.Duration
}

// ReadClock reads the database's clock.
func ReadClock(ctx context.Context, db DB) (c Clock, err error) {
	var back *float64
	if err := db.QueryRow(ctx, clockSQL).Scan(&c.Now, &back); err != nil {
		return Clock{}, fmt.Errorf("read the database's clock: %w", err)
	}
	if back != nil {
		c.SetBack = time.Duration(*back * float64(time.Second))
	}
	return c, nil
}
