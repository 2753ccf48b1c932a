package crons

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/progress"
)

// finishFor is how much longer than its term a transaction may take that has begun:
// the fence is passed, so nobody else leads before it has ended, and what it has
// done need not be done again.
const finishFor = 2 * time.Second

// errUnconfirmed is the error of a commit that was not answered in time. It may stand
// in the database: a primary whose replica is gone keeps what it was told to stop
// waiting for. So it is not tried again by this term.
var errUnconfirmed = errors.New("the commit was not confirmed in time")

// watchClientSQL lets the server end the sleep of a leader that dies in it.
const watchClientSQL = `SELECT set_config('client_connection_check_interval', '50', true)`

// holdSQL sleeps until an instant, a little longer so that rounding does not matter,
// and says whether it has come: the clock may be set back meanwhile.
const holdSQL = `
SELECT clock_timestamp() >= $1
FROM pg_sleep(greatest(0, extract(epoch FROM $1::timestamptz - clock_timestamp())::float8 + 1e-5)) AS slept`

// transact does the work under the fence. For an instant to come it is waited for
// before the commit, and the fence is passed only then: nobody is kept from taking
// over meanwhile, and what a deposed leader has prepared is rolled back. The work is
// told how long the first round trip took. One that has begun under the fence may end
// shortly after ctx.
func (l *ledger) transact(ctx context.Context, at time.Time, work func(ctx context.Context, tx pgx.Tx, now time.Time, trip time.Duration) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	lasting, cancel := outlast(ctx, finishFor)
	defer cancel()
	committing := false
	err := l.options.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		first := l.opening(conn, at)
		return pgx.BeginFunc(lasting, first, func(tx pgx.Tx) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := work(lasting, tx, first.now, first.took)
			if err == nil && !at.IsZero() {
				err = l.hold(ctx, tx, at)
			}
			committing = err == nil
			return err
		})
	})
	if err != nil && committing && lasting.Err() != nil {
		return fmt.Errorf("%w: %w", errUnconfirmed, err)
	}
	return err
}

// opening is the first round trip of a transaction: it begins it, passes the fence or, for
// an instant to come, does without, and reads the database's clock.
type opening struct {
	conn  *pgxpool.Conn
	batch pgx.Batch
	now   time.Time
	took  time.Duration
}

func (l *ledger) opening(conn *pgxpool.Conn, at time.Time) *opening {
	o := &opening{conn: conn}
	o.batch.BeginTx(pgx.TxOptions{})
	if at.IsZero() {
		l.fence.Queue(&o.batch, &o.now)
	} else {
		cronstore.QueueNow(&o.batch, &o.now)
	}
	return o
}

// Begin is what pgx.BeginFunc asks for.
func (o *opening) Begin(ctx context.Context) (pgx.Tx, error) {
	sent := time.Now()
	results := o.conn.SendBatch(ctx, &o.batch)
	err := results.Close()
	o.took = time.Since(sent)
	if err != nil {
		_ = results.Tx().Rollback(ctx) // the first error is the one that counts
		return nil, fmt.Errorf("begin a transaction: %w", err)
	}
	return results.Tx(), nil
}

// outlast returns a context that ends a while after another does.
func outlast(ctx context.Context, while time.Duration) (lasting context.Context, cancel func()) {
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(while)
		defer timer.Stop()
		select {
		case <-timer.C:
			end()
		case <-lasting.Done():
		}
	})
	return lasting, func() {
		stop()
		end()
	}
}

// hold waits for an instant by the database's clock, and passes the fence then.
func (l *ledger) hold(ctx context.Context, tx pgx.Tx, until time.Time) error {
	progress.Allow(ctx, maxLead)
	var (
		come  bool
		now   time.Time
		batch pgx.Batch
	)
	batch.Queue(watchClientSQL)
	batch.Queue(holdSQL, until).QueryRow(func(row pgx.Row) error { return row.Scan(&come) })
	l.fence.Queue(&batch, &now)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("wait for %s: %w", until.UTC().Format(time.RFC3339Nano), err)
	}
	if !come {
		return errors.New("the database's clock was set back while a tick was waited for")
	}
	return nil
}
