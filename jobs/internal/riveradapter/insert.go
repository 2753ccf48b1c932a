package riveradapter

import (
	"context"
	"crypto/sha256"
	"errors"
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
	if err := checkYears(params.Jobs); err != nil {
		return nil, err
	}
	tx, ok := exec.(*executorTx)
	if !ok {
		return exec.JobInsertFastMany(ctx, params)
	}
	rules, err := rulesOf(params.Jobs)
	if err != nil {
		return nil, err
	}
	if len(params.Jobs) != 1 && rules == nil {
		return exec.JobInsertFastMany(ctx, params)
	}
	var db postgres.DB = tx.tx
	if len(params.Jobs) == 1 && tx.unused != nil && tx.unused() && endsWithInsert(params.Jobs[0].Args) {
		db = d.pool
	}
	results := make([]*riverdriver.JobInsertFastResult, len(params.Jobs))
	for i, job := range params.Jobs {
		if results[i], err = d.insertOne(ctx, db, job, rules[i]); err != nil {
			return nil, err
		}
	}
	tx.notified = true
	return results, nil
}

// checkYears returns an error if a job is due at a time that JSON cannot represent.
func checkYears(jobs []*riverdriver.JobInsertFastParams) error {
	for _, job := range jobs {
		if job.ScheduledAt == nil {
			continue
		}
		if err := jobstore.CheckYear(*job.ScheduledAt); err != nil {
			return fmt.Errorf("a job of kind %s: ScheduledAt %w", job.Kind, err)
		}
	}
	return nil
}

// insertOne inserts a job with its notification in one statement. rule may be nil.
func (d *insertDriver) insertOne(ctx context.Context, db postgres.DB, job *riverdriver.JobInsertFastParams, rule *jobstore.Rule) (*riverdriver.JobInsertFastResult, error) {
	toInsert := jobstore.RowToInsert{
		ID: job.ID, Args: job.EncodedArgs, Metadata: job.Metadata, CreatedAt: job.CreatedAt, ScheduledAt: job.ScheduledAt,
		Kind: job.Kind, MaxAttempts: job.MaxAttempts, Priority: job.Priority, Queue: job.Queue, State: string(job.State), Tags: job.Tags,
		UniqueKey: job.UniqueKey, UniqueStates: job.UniqueStates,
	}
	var row jobstore.Row
	var existing bool
	var err error
	if rule != nil {
		toInsert.UniqueKey = keyBy(job, rule)
	}
	if rule != nil && rule.OnlyKey() {
		toInsert.UniqueStates = UniqueStates
		if toInsert.Metadata, err = jobstore.WithoutRule(job.Metadata); err != nil {
			return nil, fmt.Errorf("a job of kind %s: %w", job.Kind, err)
		}
	}
	if rule != nil && !rule.OnlyKey() {
		row, existing, err = d.store.InsertDeduplicated(ctx, db, toInsert, *rule)
	} else {
		toInsert.Notification = d.notification(job)
		row, existing, err = d.store.Insert(ctx, db, toInsert)
	}
	if err != nil {
		return nil, err
	}
	inserted, err := decode(&row)
	if err != nil {
		return nil, err
	}
	return &riverdriver.JobInsertFastResult{Job: inserted, UniqueSkippedAsDuplicate: existing}, nil
}

// rulesOf returns the rules for duplicates of the jobs by their index, or nil if none has one.
func rulesOf(jobs []*riverdriver.JobInsertFastParams) (rules map[int]*jobstore.Rule, err error) {
	for i, job := range jobs {
		rule, err := jobstore.RuleOf(job.Metadata)
		if err != nil {
			return nil, fmt.Errorf("a job of kind %s: %w", job.Kind, err)
		}
		if rule == nil {
			continue
		}
		if rules == nil {
			rules = map[int]*jobstore.Rule{}
		}
		rules[i] = rule
	}
	return rules, nil
}

// keyBy returns the unique key of a job with a rule. Without a key of its own and unique
// options, all jobs of the kind are equal.
func keyBy(job *riverdriver.JobInsertFastParams, rule *jobstore.Rule) []byte {
	switch {
	case rule.Key != "":
		return OwnKey(job.Kind, rule.Key)
	case len(job.UniqueKey) > 0:
		return job.UniqueKey
	default:
		sum := sha256.Sum256([]byte("&kind=" + job.Kind))
		return sum[:]
	}
}

// OwnKey returns the unique key for a caller's own key. It differs from the keys that River
// computes and from those of other kinds.
func OwnKey(kind, key string) []byte {
	sum := sha256.Sum256([]byte("forge:" + kind + "\x00" + key))
	return sum[:]
}

// JobInsertFastManyNoReturning implements River's executor. COPY merges no jobs.
func (t *executorTx) JobInsertFastManyNoReturning(ctx context.Context, params *riverdriver.JobInsertFastManyParams) (int, error) {
	if err := checkYears(params.Jobs); err != nil {
		return 0, err
	}
	if rules, err := rulesOf(params.Jobs); err != nil || rules != nil {
		return 0, errors.Join(err, errors.New("InsertManyFast cannot replace, debounce or throttle jobs, nor use a Key; use InsertMany"))
	}
	return t.ExecutorTx.JobInsertFastManyNoReturning(ctx, params)
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
