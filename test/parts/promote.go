package parts

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	synchronousSQL = `ALTER SYSTEM SET synchronous_standby_names = '*'`
	reloadSQL      = `SELECT pg_reload_conf()`
	syncedSQL      = `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`
	promoteSQL     = `SELECT pg_promote(wait => false)`
	writableSQL    = `SELECT (NOT pg_is_in_recovery())::int`
)

// Synchronous makes a primary wait for its replica at each commit, and returns
// when it does. The replica itself, promoted, waits for nobody.
func Synchronous(ctx context.Context, primary string) error {
	conn, err := pgx.Connect(ctx, primary)
	if err != nil {
		return fmt.Errorf("connect to the primary: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{synchronousSQL, reloadSQL} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the replication synchronous: %w", err)
		}
	}
	if err := awaitOne(ctx, conn, syncedSQL); err != nil {
		return fmt.Errorf("wait for the replica to catch up: %w", err)
	}
	return nil
}

// Promote makes a replica a primary, and says when it took writes.
func Promote(ctx context.Context, replica string) (time.Time, error) {
	conn, err := pgx.Connect(ctx, replica)
	if err != nil {
		return time.Time{}, fmt.Errorf("connect to the replica: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, promoteSQL); err != nil {
		return time.Time{}, fmt.Errorf("promote the replica: %w", err)
	}
	if err := awaitOne(ctx, conn, writableSQL); err != nil {
		return time.Time{}, fmt.Errorf("wait for the end of the recovery: %w", err)
	}
	return time.Now(), nil
}

// awaitOne asks until the answer is 1.
func awaitOne(ctx context.Context, conn *pgx.Conn, sql string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		var answer int
		if err := conn.QueryRow(ctx, sql).Scan(&answer); err != nil || answer == 1 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
