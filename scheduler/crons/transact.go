package crons

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

// commitGracePeriod is how much longer than its term a transaction may take that has
// passed the fence. No other node can lead before the transaction ends, and its work need
// not be repeated.
const commitGracePeriod = 2 * time.Second

// watchClientSQL makes the server end the sleep if the leader's connection is lost.
const watchClientSQL = `SELECT set_config('client_connection_check_interval', '50', true)`

// waitUntilSQL sleeps until an instant, slightly longer to allow for rounding. It returns
// whether the instant has come: the clock may be set back during the sleep.
const waitUntilSQL = `
SELECT clock_timestamp() >= $1
FROM pg_sleep(greatest(0, extract(epoch FROM $1::timestamptz - clock_timestamp())::float8 + 1e-5)) AS slept`

// transact runs work in a transaction under the fence. If at is set, transact waits for
// that time before the commit, and passes the fence only then, so it does not delay a new
// leader, and the work of a deposed leader is rolled back. work gets the database's time
// and the duration of the first round trip. A transaction that has begun under the fence
// may end shortly after ctx.
func (l *ledger) transact(ctx context.Context, at time.Time, work func(ctx context.Context, tx pgx.Tx, now time.Time, trip time.Duration) error) error {
	if err := l.confirm(ctx); err != nil {
		return err
	}
	extended, cancel := withGracePeriod(ctx, commitGracePeriod)
	defer cancel()
	committing := false
	err := l.options.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		first := l.beginFenced(conn, at)
		return pgx.BeginFunc(extended, first, func(tx pgx.Tx) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := work(extended, tx, first.now, first.took)
			if err == nil && !at.IsZero() {
				err = l.waitUntil(ctx, tx, at)
			}
			committing = err == nil
			return err
		})
	})
	l.unconfirmed = err != nil && committing
	return err
}

// confirm waits until synchronous replicas, if there are any, have the last commit, if that
// commit failed. It may have succeeded: a primary that has lost its replica keeps the
// transaction when its wait is cancelled. Without confirm, each retry would leave another
// transaction there that a promotion loses.
func (l *ledger) confirm(ctx context.Context) error {
	if err := ctx.Err(); err != nil || !l.unconfirmed {
		return err
	}
	if err := postgres.Confirm(ctx, l.options.Pool); err != nil {
		return fmt.Errorf("confirm the last commit: %w", err)
	}
	l.unconfirmed = false
	return nil
}

// firstRoundTrip is the first round trip of a transaction. It begins the transaction and
// reads the database's clock. It also passes the fence, unless the transaction is
// prepared ahead.
type firstRoundTrip struct {
	conn  *pgxpool.Conn
	batch pgx.Batch
	now   time.Time
	took  time.Duration
}

func (l *ledger) beginFenced(conn *pgxpool.Conn, at time.Time) *firstRoundTrip {
	r := &firstRoundTrip{conn: conn}
	r.batch.BeginTx(pgx.TxOptions{})
	if at.IsZero() {
		l.fence.Queue(&r.batch, &r.now)
	} else {
		cronstore.QueueNow(&r.batch, &r.now)
	}
	return r
}

// Begin implements the interface that pgx.BeginFunc needs.
func (r *firstRoundTrip) Begin(ctx context.Context) (pgx.Tx, error) {
	sent := time.Now()
	results := r.conn.SendBatch(ctx, &r.batch)
	err := results.Close()
	r.took = time.Since(sent)
	if err != nil {
		_ = results.Tx().Rollback(ctx) // the first error is more useful
		return nil, fmt.Errorf("begin a transaction: %w", err)
	}
	return results.Tx(), nil
}

// withGracePeriod returns a context that ends some time after ctx.
func withGracePeriod(ctx context.Context, grace time.Duration) (extended context.Context, cancel func()) {
	extended, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			end()
		case <-extended.Done():
		}
	})
	return extended, func() {
		stop()
		end()
	}
}

// waitUntil waits for a time by the database's clock, and then passes the fence.
func (l *ledger) waitUntil(ctx context.Context, tx pgx.Tx, until time.Time) error {
	watchdog.Extend(ctx, maxLead)
	var (
		reached bool
		now     time.Time
		batch   pgx.Batch
	)
	batch.Queue(watchClientSQL)
	batch.Queue(waitUntilSQL, until).QueryRow(func(row pgx.Row) error { return row.Scan(&reached) })
	l.fence.Queue(&batch, &now)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("wait for %s: %w", until.UTC().Format(time.RFC3339Nano), err)
	}
	if !reached {
		return errors.New("the database's clock was set back during the wait for a tick")
	}
	return nil
}
