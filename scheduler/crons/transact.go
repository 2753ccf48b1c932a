package crons

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// commitGracePeriod is how much longer than its term a transaction may take that has
// passed the fence. No other node can lead before the transaction ends, and its work need
// not be repeated.
const commitGracePeriod = 2 * time.Second

// watchClientSQL makes the server end the sleep if the leader's connection is lost.
const watchClientSQL = `SELECT set_config('client_connection_check_interval', '50', true)`

// waitUntilSQL waits until an instant, and returns whether it has come: the clock may be set
// back during the wait. pg_sleep sleeps for whole milliseconds, rounded up. So the statement
// sleeps until at most 1.3 milliseconds are left, and reads the clock until these are over.
const waitUntilSQL = `
SELECT EXISTS (SELECT FROM (SELECT generate_series(1, 1000000)) AS spin WHERE clock_timestamp() >= $1)
FROM pg_sleep(greatest(0, floor(extract(epoch FROM $1::timestamptz - clock_timestamp())::float8 * 1000 - 0.3) / 1000)) AS slept`

// transact runs work in a transaction under the fence. If at is set, transact waits for
// that time before the commit, and passes the fence only then, so it does not delay a new
// leader, and the work of a deposed leader is rolled back. work gets the database's time
// and the duration of the first round trip. It returns the jobs that it has inserted, which are
// offered or announced at that time. A transaction that has begun under the fence
// may end shortly after ctx.
func (l *ledger) transact(ctx context.Context, at time.Time, work func(ctx context.Context, tx pgx.Tx, now time.Time, trip time.Duration) ([]jobstore.NewJob, error)) error {
	if err := l.confirm(ctx); err != nil {
		return err
	}
	extended, cancel := withGracePeriod(ctx, commitGracePeriod)
	defer cancel()
	var flushing sync.WaitGroup
	defer flushing.Wait()
	committing := false
	var reserved *assign.Reservation
	err := l.options.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		first := l.beginFenced(conn, at)
		return pgx.BeginFunc(extended, first, func(tx pgx.Tx) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			jobs, err := work(extended, tx, first.now, first.took)
			if err == nil && !at.IsZero() {
				flushing.Go(func() { l.flush(extended) })
				reserved, err = l.waitUntil(ctx, tx, at, jobs)
			}
			committing = err == nil
			return err
		})
	})
	if reserved != nil {
		reserved.Release(err == nil)
	}
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

// flush has the server write what the transaction has logged so far, so that little is left to
// write at the commit. Another connection sends a small commit, which implies that. If flush
// fails, the commit writes everything.
func (l *ledger) flush(ctx context.Context) { _ = postgres.Confirm(ctx, l.options.Pool) }

// waitUntil waits for a time by the database's clock, and then passes the fence and sends the
// offers of the jobs. The caller must release the reservation, which may be nil, after the
// commit.
func (l *ledger) waitUntil(ctx context.Context, tx pgx.Tx, until time.Time, jobs []jobstore.NewJob) (*assign.Reservation, error) {
	watchdog.Extend(ctx, maxLead)
	var (
		reached    bool
		now        time.Time
		conditions jobstore.OfferConditions
		batch      pgx.Batch
	)
	batch.Queue(watchClientSQL)
	batch.Queue(waitUntilSQL, until).QueryRow(func(row pgx.Row) error { return row.Scan(&reached) })
	l.fence.Queue(&batch, &now)
	jobstore.BatchOfferConditions(&batch, jobs, &conditions)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("wait for %s: %w", until.UTC().Format(time.RFC3339Nano), err)
	}
	if !reached {
		return nil, errors.New("the database's clock was set back during the wait for a tick")
	}
	return l.sendOffers(ctx, tx, jobs, conditions)
}

// sendOffers sends the offers of the jobs at the commit, or announces the jobs if no offer can
// be made now.
func (l *ledger) sendOffers(ctx context.Context, tx pgx.Tx, jobs []jobstore.NewJob, conditions jobstore.OfferConditions) (reserved *assign.Reservation, err error) {
	var batch pgx.Batch
	if l.options.Assigner != nil {
		reserved = l.options.Assigner.Reserve(ctx, l.fence.Term, jobs, conditions)
	}
	if reserved != nil {
		reserved.Queue(&batch)
	} else {
		jobstore.BatchNotifyAvailable(&batch, jobstore.QueuesOf(jobs))
	}
	if batch.Len() == 0 {
		return nil, nil
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return reserved, fmt.Errorf("offer the jobs of ticks: %w", err)
	}
	return reserved, nil
}
