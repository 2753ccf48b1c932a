package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// ErrDeposed means that the term of the writer is no longer the current one. The writer
// must roll back and stop leading.
var ErrDeposed = errors.New("deposed: the term is over")

// Fence is the permission to write for one term of one role.
type Fence struct {
	Role        string
	Term        int64
	NodeID      string
	Incarnation string
	// IdleTimeout is how long the server keeps a fenced transaction whose client is silent.
	// 0 uses the setting of the connection.
	IdleTimeout time.Duration
	// Refused counts rejected writes; it may be nil.
	Refused Counter
}

// Counter is a metric that counts up.
type Counter interface{ Inc() }

// deposed counts a rejected write and returns an error that wraps ErrDeposed.
func (f Fence) deposed() error {
	if f.Refused != nil {
		f.Refused.Inc()
	}
	return fmt.Errorf("%s term %d: %w", f.Role, f.Term, ErrDeposed)
}

// FOR KEY SHARE together with UNIQUE (role, term) blocks the next term until the
// transaction ends, but not the leader's own renewals. The row of an earlier term shows that the
// server has not seen this one.
const fenceSQL = `
SELECT clock_timestamp(), term
FROM forge_leaders
WHERE role = $1 AND (term = $2 AND incarnation = $3 OR term < $2)
FOR KEY SHARE`

// unfencedSQL accepts every term. Tests use it to show that the fence is necessary.
const unfencedSQL = `SELECT clock_timestamp(), $2::bigint WHERE ($1::text, $3::text) IS NOT NULL`

const idleInTransactionTimeoutSQL = `SELECT set_config('idle_in_transaction_session_timeout', $1, true)`

// Check must be the first statement of a leader's writing transaction. It returns the
// database's clock, or ErrDeposed. After it has succeeded, no other term can begin for the
// role before tx ends. On a server that has not seen the term, the error is another one, because
// the term may go on elsewhere: a primary that was replaced while it was frozen accepts
// connections for a moment when it wakes up.
func (f Fence) Check(ctx context.Context, tx pgx.Tx) (now time.Time, err error) {
	var batch pgx.Batch
	f.Queue(&batch, &now)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return time.Time{}, fmt.Errorf("check the fence of %s: %w", f.Role, err)
	}
	return now, nil
}

// Queue adds Check to a batch to save a round trip. The batch then either sets now or fails
// with ErrDeposed. Later statements of the batch are executed even if the term is over, so
// the transaction must be rolled back if the batch fails.
func (f Fence) Queue(batch *pgx.Batch, now *time.Time) {
	if f.IdleTimeout > 0 {
		batch.Queue(idleInTransactionTimeoutSQL, milliseconds(f.IdleTimeout))
	}
	sql := fenceSQL
	if failpoint.Off("leaderstore/fence") {
		sql = unfencedSQL
	}
	batch.Queue(sql, f.Role, f.Term, f.Incarnation).QueryRow(func(row pgx.Row) error {
		var term int64
		err := row.Scan(now, &term)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return f.deposed()
		case err == nil && term < f.Term:
			return fmt.Errorf("%s term %d: this server has seen only term %d: it was replaced, or has lost commits", f.Role, f.Term, term)
		}
		return err
	})
}

// Do runs work in one fenced transaction and commits it. now is the database's clock after
// the fence check.
func (f Fence) Do(ctx context.Context, db postgres.DB, work func(tx pgx.Tx, now time.Time) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		now, err := f.Check(ctx, tx)
		if err != nil {
			return err
		}
		return work(tx, now)
	})
}

// Refusal returns why a statement that required the term had no effect: ErrDeposed, or another
// error if the term goes on.
func (f Fence) Refusal(ctx context.Context, db postgres.DB) error {
	return f.Do(ctx, db, func(pgx.Tx, time.Time) error {
		return fmt.Errorf("%s term %d: the term is current, but the statement ran on a server that has not seen it", f.Role, f.Term)
	})
}
