package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/dbpool"
)

// replayedSQL returns when the newest transaction that a replica has replayed was
// committed, and how many seconds ago: null before the first one after its start.
const replayedSQL = `
SELECT pg_is_in_recovery(), pg_last_xact_replay_timestamp(),
       extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8`

// connectedToRead runs work that changes nothing. If no server takes writes it runs on a
// replica, and a warning says how old its data may be.
func (a *app) connectedToRead(ctx context.Context, cfg *config.Config, work func(context.Context, *pgxpool.Pool) error) error {
	pool, err := openPool(ctx, cfg, false)
	readOnly := errors.Is(err, dbpool.ErrReadOnly)
	if readOnly {
		pool, err = openPool(ctx, cfg, true)
	}
	if err != nil {
		return err
	}
	defer pool.Close()
	if readOnly {
		if err := a.warnOfReplica(ctx, pool); err != nil {
			return err
		}
	}
	return explainRefusal(ctx, pool, cfg.Database.Schema, work(ctx, pool))
}

func (a *app) warnOfReplica(ctx context.Context, pool *pgxpool.Pool) error {
	var (
		replica  bool
		replayed *time.Time
		seconds  *float64
	)
	if err := pool.QueryRow(ctx, replayedSQL).Scan(&replica, &replayed, &seconds); err != nil {
		return fmt.Errorf("find out how old the replica's data is: %w", err)
	}
	warning := "warning: no primary answers; this comes from a replica"
	switch {
	case !replica:
		warning = "warning: the server is read-only"
	case replayed == nil || seconds == nil:
		warning += " that has replayed nothing since it started: its data may be of any age"
	default:
		warning += fmt.Sprintf(" and may be %s old: it has replayed the changes until %s",
			span(time.Duration(*seconds*float64(time.Second))), stamp(*replayed))
	}
	_, err := fmt.Fprintln(a.err, warning)
	return err
}
