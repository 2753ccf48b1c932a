package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/failpoint"
)

// ErrDeposed says that the term that wanted to write is no longer the current
// one. The writer must roll back and stop leading.
var ErrDeposed = errors.New("deposed: the term is over")

// Fence is the right to write in the name of one term of one role.
type Fence struct {
	Role        string
	Term        int64
	NodeID      string
	Incarnation string
	// Patience is how long the server bears that a transaction under the fence is
	// abandoned by its client; 0: as long as the connection's own settings say.
	Patience time.Duration
	// Refused counts the writes that were refused because the term was over; may be nil.
	Refused Counter
}

// Counter is a metric that rises by one.
type Counter interface{ Inc() }

// Deposed counts a refused write, and returns the error that says so: an ErrDeposed.
func (f Fence) Deposed() error {
	if f.Refused != nil {
		f.Refused.Inc()
	}
	return fmt.Errorf("%s term %d: %w", f.Role, f.Term, ErrDeposed)
}

// The fence takes FOR KEY SHARE: with UNIQUE (role, term) that blocks the next
// mint until the transaction ends, and not the leader's own renewal.
const fenceSQL = `
SELECT clock_timestamp()
FROM forge_leaders
WHERE role = $1 AND term = $2 AND incarnation = $3
FOR KEY SHARE`

// unfencedSQL lets every term write: tests show with it what the fence is for.
const unfencedSQL = `SELECT clock_timestamp() WHERE ($1::text, $2::bigint, $3::text) IS NOT NULL`

const patienceInTxSQL = `SELECT set_config('idle_in_transaction_session_timeout', $1, true)`

// Check must be the first statement of a leader's writing transaction. It
// returns the database's clock, or ErrDeposed. Once it has succeeded no other
// term can be minted for the role before tx ends.
func (f Fence) Check(ctx context.Context, tx pgx.Tx) (now time.Time, err error) {
	var batch pgx.Batch
	f.Queue(&batch, &now)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return time.Time{}, fmt.Errorf("check the fence of %s: %w", f.Role, err)
	}
	return now, nil
}

// Queue adds what Check does to a batch, which thereby saves a round trip: it fails with
// ErrDeposed, or sets now. Statements that follow in the batch are executed even if the
// term is over, so the transaction must be rolled back when the batch fails.
func (f Fence) Queue(batch *pgx.Batch, now *time.Time) {
	if f.Patience > 0 {
		batch.Queue(patienceInTxSQL, milliseconds(f.Patience))
	}
	sql := fenceSQL
	if failpoint.Off("leaderstore/fence") {
		sql = unfencedSQL
	}
	batch.Queue(sql, f.Role, f.Term, f.Incarnation).QueryRow(func(row pgx.Row) error {
		err := row.Scan(now)
		if errors.Is(err, pgx.ErrNoRows) {
			return f.Deposed()
		}
		return err
	})
}

// Beginner starts transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Do runs work in one fenced transaction and commits it. now is the database's
// clock after the fence was passed.
func (f Fence) Do(ctx context.Context, db Beginner, work func(tx pgx.Tx, now time.Time) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		now, err := f.Check(ctx, tx)
		if err != nil {
			return err
		}
		return work(tx, now)
	})
}
