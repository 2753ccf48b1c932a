package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// ErrTwoDatabases means that database.leader_url leads to another database than database.url:
// the roles of the cluster there would be taken.
var ErrTwoDatabases = errors.New("database.leader_url and database.url lead to two databases; want two addresses of one")

// CheckLeaderURL returns ErrTwoDatabases, or an error that wraps postgres.ErrUnreachable if the
// server of LeaderURL refuses the login. It returns nil if a server does not answer: the next
// connection reports the reason. The strategy Lease allows servers without the locks that
// CheckLeaderURL needs.
func CheckLeaderURL(ctx context.Context, options Options) error {
	options = options.withDefaults()
	if options.LeaderURL == options.URL {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, options.Timeout)
	defer cancel()
	leaders, err := dialPrimary(ctx, options.LeaderURL)
	if err != nil {
		return refusedLogin(err)
	}
	defer postgres.CloseNow(leaders)
	others, err := dialPrimary(ctx, options.URL)
	if err != nil {
		return nil // reported elsewhere
	}
	defer postgres.CloseNow(others)
	// Two transactions cannot have one lock, unless they are in two databases.
	both, id := false, rand.Int64()
	_ = pgx.BeginFunc(ctx, leaders, func(tx pgx.Tx) error {
		const lock = `SELECT pg_try_advisory_xact_lock($1)`
		if _, err := tx.Exec(ctx, lock, id); err != nil {
			return err
		}
		return others.QueryRow(ctx, lock, id).Scan(&both)
	})
	if both {
		return ErrTwoDatabases
	}
	return nil
}

// refusedLogin returns an error if the server refuses the user, the password or the database.
func refusedLogin(err error) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !refusesLogin(refused.Code) {
		return nil
	}
	return fmt.Errorf("%w: %s; check the user, the password and the database in database.leader_url or "+
		"FORGE_DATABASE_LEADER_URL; see forge doctor", postgres.ErrUnreachable, refused.Message)
}
