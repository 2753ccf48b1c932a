package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// connectedToRead runs work that changes nothing. If no server accepts writes, the work runs on a
// replica after a warning about the age of its data.
func (a *app) connectedToRead(ctx context.Context, cfg *config.Config, work func(context.Context, *pgxpool.Pool) error) error {
	pool, err := openPool(ctx, cfg, false)
	readOnly := errors.Is(err, postgres.ErrReadOnly)
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
	replay, err := postgres.ReadReplay(ctx, pool)
	if err != nil {
		return err
	}
	warning := "warning: no primary answers; this comes from a replica"
	switch {
	case !replay.Replica:
		warning = "warning: the server is read-only"
	case replay.Until.IsZero():
		warning += " that has replayed nothing since it started: its data may be of any age"
	default:
		warning += fmt.Sprintf(" and may be %s old: it has replayed the changes until %s", span(replay.Age), stamp(replay.Until))
	}
	_, err = fmt.Fprintln(a.err, warning)
	return err
}
