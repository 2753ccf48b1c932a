package riveradapter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// insertDriver is River's driver, except that a single job and its notification are one
// statement. Outside of a caller's transaction this is the only round trip: River's own
// takes one each to begin, insert, notify and commit.
type insertDriver struct {
	*riverpgxv5.Driver
	pool    *pgxpool.Pool
	store   *jobstore.Inserter
	limiter notifyLimiter
}

func newInsertDriver(pool *pgxpool.Pool, schema string, notifyEvery time.Duration) *insertDriver {
	return &insertDriver{
		Driver: riverpgxv5.New(pool), pool: pool, store: jobstore.NewInserter(schema),
		limiter: notifyLimiter{every: notifyEvery, last: map[string]time.Time{}},
	}
}

// GetExecutor implements River's driver.
func (d *insertDriver) GetExecutor() riverdriver.Executor {
	return executor{d.Driver.GetExecutor(), d}
}

// UnwrapExecutor implements River's driver. River calls it for each use of a caller's
// transaction.
func (d *insertDriver) UnwrapExecutor(tx pgx.Tx) riverdriver.ExecutorTx {
	return &executorTx{ExecutorTx: d.Driver.UnwrapExecutor(tx), tx: tx}
}

// UnwrapTx implements River's driver.
func (d *insertDriver) UnwrapTx(exec riverdriver.ExecutorTx) pgx.Tx {
	if own, ok := exec.(*executorTx); ok {
		return own.tx
	}
	return d.Driver.UnwrapTx(exec)
}

// executor begins its transactions when they are first used.
type executor struct {
	riverdriver.Executor
	driver *insertDriver
}

// Begin implements River's executor.
func (e executor) Begin(ctx context.Context) (riverdriver.ExecutorTx, error) {
	tx := &lazyTx{ctx: ctx, pool: e.driver.pool}
	return &executorTx{ExecutorTx: e.driver.Driver.UnwrapExecutor(tx), tx: tx, unused: tx.unused}, nil
}

// executorTx is River's executor on a transaction.
type executorTx struct {
	riverdriver.ExecutorTx
	tx pgx.Tx
	// unused reports whether the transaction has not begun. It is nil for a caller's.
	unused func() bool
	// notified means that the insert has sent the notification that is due.
	notified bool
}

// NotifyMany implements River's executor. River calls it after each insert.
func (t *executorTx) NotifyMany(ctx context.Context, params *riverdriver.NotifyManyParams) error {
	if t.notified && params.Topic == wire.RiverInsertChannel {
		return nil
	}
	return t.ExecutorTx.NotifyMany(ctx, params)
}

// insertMany is the JobInsertMany of the pilots.
func (d *insertDriver) insertMany(ctx context.Context, exec riverdriver.ExecutorTx, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	tx, ok := exec.(*executorTx)
	if !ok || len(params.Jobs) != 1 {
		return exec.JobInsertFastMany(ctx, params)
	}
	job := params.Jobs[0]
	var db postgres.DB = tx.tx
	if tx.unused != nil && tx.unused() && endsWithInsert(job.Args) {
		db = d.pool
	}
	row, existing, err := d.store.Insert(ctx, db, jobstore.RowToInsert{
		ID: job.ID, Args: job.EncodedArgs, Metadata: job.Metadata, CreatedAt: job.CreatedAt, ScheduledAt: job.ScheduledAt,
		Kind: job.Kind, MaxAttempts: job.MaxAttempts, Priority: job.Priority, Queue: job.Queue, State: string(job.State), Tags: job.Tags,
		UniqueKey: job.UniqueKey, UniqueStates: job.UniqueStates, Notification: d.notification(job),
	})
	if err != nil {
		return nil, err
	}
	tx.notified = true
	inserted, err := decode(&row)
	if err != nil {
		return nil, err
	}
	return []*riverdriver.JobInsertFastResult{{Job: inserted, UniqueSkippedAsDuplicate: existing}}, nil
}

// endsWithInsert reports whether River's client does nothing in the transaction after the
// insert. A plugin of the arguments may fail after it, which must undo it. River keeps the
// plugins by kind, so the arguments of a kind that is known only at run time may have any.
func endsWithInsert(args rivertype.JobArgs) bool {
	if _, ok := args.(interface{ KindAtRunTime() }); ok {
		return false
	}
	_, ok := args.(interface{ Plugins() []rivertype.Plugin })
	return !ok
}

// notification returns the payload of River's notification, if one is due.
func (d *insertDriver) notification(job *riverdriver.JobInsertFastParams) string {
	if job.State != rivertype.JobStateAvailable || !d.limiter.due(job.Queue, time.Now()) {
		return ""
	}
	return fmt.Sprintf("{\"queue\": %q}", job.Queue)
}

// notifyLimiter limits the notifications of each queue, as River's client does.
type notifyLimiter struct {
	every time.Duration

	mu   sync.Mutex
	last map[string]time.Time // by queue
}

func (l *notifyLimiter) due(queue string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last[queue].Before(now.Add(-l.every)) {
		return false
	}
	l.last[queue] = now
	return true
}

// InsertDriver is the driver of a client that runs no jobs.
type InsertDriver struct{ *insertDriver }

var _ riverdriver.Driver[pgx.Tx] = InsertDriver{}

// NewInsertDriver returns a driver for a client that runs no jobs. notifyEvery is the
// minimum time between two notifications for a queue.
func NewInsertDriver(pool *pgxpool.Pool, schema string, notifyEvery time.Duration) InsertDriver {
	return InsertDriver{newInsertDriver(pool, schema, notifyEvery)}
}

// PluginInit is part of River's plugin interface. It does nothing.
func (InsertDriver) PluginInit(*baseservice.Archetype) {}

// PluginPilot returns a pilot that only inserts.
func (d InsertDriver) PluginPilot() riverpilot.Pilot { return &insertPilot{driver: d.insertDriver} }

type insertPilot struct {
	riverpilot.StandardPilot
	driver *insertDriver
}

// JobInsertMany implements River's pilot.
func (p *insertPilot) JobInsertMany(ctx context.Context, exec riverdriver.ExecutorTx, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	return p.driver.insertMany(ctx, exec, params)
}

// JobInsertMany implements River's pilot.
func (p *Pilot) JobInsertMany(ctx context.Context, exec riverdriver.ExecutorTx, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	return p.driver.insertMany(ctx, exec, params)
}
