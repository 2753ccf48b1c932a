package postgres

import (
	"context"
	"fmt"
	"time"
)

// The timestamp is null before the first transaction that a replica replays after its start.
const replaySQL = `
SELECT pg_is_in_recovery(), pg_last_xact_replay_timestamp(),
       greatest(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)::float8`

// Replay is how far a server has replayed the WAL of its primary.
type Replay struct {
	// Replica is false on a primary; the other fields are then zero.
	Replica bool
	// Until is when the newest replayed transaction was committed; zero if the
	// replica has replayed none since it started.
	Until time.Time
	// Age is the age of Until by the server's clock: the data is at most that old.
	Age time.Duration
}

// ReadReplay reads how far the server has replayed.
func ReadReplay(ctx context.Context, db DB) (r Replay, err error) {
	var until *time.Time
	var age *float64
	if err := db.QueryRow(ctx, replaySQL).Scan(&r.Replica, &until, &age); err != nil {
		return Replay{}, fmt.Errorf("read how far the replica has replayed: %w", err)
	}
	if r.Replica && until != nil && age != nil {
		r.Until, r.Age = *until, time.Duration(*age*float64(time.Second))
	}
	return r, nil
}
