package compactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// longBatch is the timeout of one batch, for slow disks.
	longBatch = time.Minute
	// batchTarget is the intended duration of a batch; later batches are smaller if
	// one takes longer or fails.
	batchTarget = time.Second
	// batchTries is how often a pass tries the next batch of a table, with fewer
	// rows each time.
	batchTries = 4
	// shortLock is the lock timeout of a batch, which gives way to other
	// transactions.
	shortLock = 200 * time.Millisecond
)

// LeastIndex is the size in bytes from which an index may be rebuilt.
const LeastIndex = 8 << 20

const mannersSQL = `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`

// Retention is how long ended things are kept. 0 means forever, except for Metrics,
// Rollups and Idle.
type Retention struct {
	Completed time.Duration // jobs and their output, from their end
	Cancelled time.Duration
	Discarded time.Duration
	Logs      time.Duration // output of jobs, even of jobs that are kept, unless it has its own retention
	CronTicks time.Duration // ledger
	Events    time.Duration // also notifications and alerts, from their end
	Audit     time.Duration // audit log, and tokens and configurations from their end
	History   time.Duration // tenures of leaders: cluster.leader_election.history_retention
	// Metrics is the retention of the cluster's sums. Default: 24 h; rollups are
	// kept longer.
	Metrics time.Duration
	// Rollups is the retention by the length of the windows. Default: 24 h, 7 and
	// 90 days.
	Rollups map[aggregator.Step]time.Duration
	// Idle is the retention of rows of queues that no node works and of nodes that
	// left or are dead. Default: 24 h.
	Idle time.Duration
}

// Options are the settings of a Compactor. Only Retention and Logger are
// required.
type Options struct {
	// Retention is called at the start of each pass, because it may change.
	Retention func() Retention
	Logger    *slog.Logger
	// Metrics counts the results of passes and the writes that the fence rejected.
	// Default: none.
	Metrics *metrics.Metrics
	// Interval is the time between the starts of two passes. Each pass runs some
	// twenty transactions even if it finds nothing. Default: 5 minutes.
	Interval time.Duration
	// Delay is the delay of the first pass, so that it does not compete with other
	// work after a failover. Default: 1 s.
	Delay time.Duration
	// Batch is the maximum number of rows that one transaction deletes, not
	// counting output of deleted jobs. Default: 1,000.
	Batch int
	// Pause is the time between two batches. Default: 100 ms.
	Pause time.Duration
	// Quiet is how long an ended attempt must not have written before its output is
	// merged: its node may still write. Default: 5 minutes.
	Quiet time.Duration
	// LeastIndex is the size in bytes from which an index is rebuilt if it is
	// mostly unused. Default: the constant of that name.
	LeastIndex int64
	// LargePartition is the size in bytes from which a partition is dropped as a
	// whole. Default: the constant of that name.
	LargePartition int64
}

// Compactor does the work of the leader of the role log_compactor.
type Compactor struct {
	db   postgres.DB
	opts Options
}

// New returns a Compactor for a database.
func New(db postgres.DB, opts Options) *Compactor {
	opts.Interval = cmp.Or(opts.Interval, 5*time.Minute)
	opts.Delay = cmp.Or(opts.Delay, time.Second)
	opts.Batch = cmp.Or(opts.Batch, 1000)
	opts.Pause = cmp.Or(opts.Pause, 100*time.Millisecond)
	opts.Quiet = cmp.Or(opts.Quiet, 5*time.Minute)
	opts.LeastIndex = cmp.Or(opts.LeastIndex, LeastIndex)
	opts.LargePartition = cmp.Or(opts.LargePartition, LargePartition)
	c := &Compactor{db: db, opts: opts}
	if c.opts.Metrics != nil {
		c.opts.Metrics.InitCompactor(c.removes())
	}
	return c
}

// Lead makes passes until ctx ends, which interrupts a running pass. It returns
// leaderstore.ErrDeposed when the term has ended; other errors are logged, and the
// next pass retries.
func (c *Compactor) Lead(ctx context.Context, fence leaderstore.Fence) error {
	defer c.forgetMeasures()
	next := time.NewTimer(c.opts.Delay)
	defer next.Stop()
	pass := c.newPass(fence)
	for {
		if !watchdog.Await(ctx, next.C) {
			return nil
		}
		next.Reset(c.opts.Interval)
		if err := pass.run(ctx); errors.Is(err, leaderstore.ErrDeposed) {
			return err
		}
	}
}

func (c *Compactor) newPass(fence leaderstore.Fence) *pass {
	return &pass{
		Compactor: c, fence: fence, size: postgres.NewBatchSize(c.opts.Batch, batchTarget), merging: postgres.NewBatchSize(c.opts.Batch, batchTarget),
		rebuilt: map[string]time.Time{}, analyzed: map[string]time.Time{}, proved: map[string]time.Time{},
	}
}

// pass runs the sweeps in one term.
type pass struct {
	*Compactor
	fence leaderstore.Fence
	// size is the number of rows that the next batch deletes, merging the number of
	// chunks that it packs.
	size, merging *postgres.BatchSize
	// strayAfter is the job after which the search for stray output continues.
	strayAfter int64
	// rebuilt is when each index was rebuilt.
	rebuilt map[string]time.Time
	// analyzed is when each table with partitions was analyzed, and proved when the
	// end of its last partition was last checked.
	analyzed, proved map[string]time.Time
	// record is the result of this pass so far.
	record Pass
}

// batch deletes at most limit rows that ended before an instant.
type batch func(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (deleted int64, err error)

// sweep is the retention of one table.
type sweep struct {
	name string
	keep time.Duration
	batch
}

// strayLogs is the name of what sweepStray removes.
const strayLogs = "stray_logs"

// overAlready is the retention of rows that contain the instant at which they
// expire.
const overAlready = time.Microsecond

// retention returns the configured retention with the defaults.
func (c *Compactor) retention() Retention {
	keep := c.opts.Retention()
	keep.Metrics = cmp.Or(keep.Metrics, 24*time.Hour)
	keep.Idle = cmp.Or(keep.Idle, 24*time.Hour)
	return keep
}

// sweeps returns the sweeps of the tables without partitions.
func sweeps(keep Retention) []sweep {
	sweeps := []sweep{
		{"completed_jobs", keep.Completed, jobsIn("completed")},
		{"cancelled_jobs", keep.Cancelled, jobsIn("cancelled")},
		{"discarded_jobs", keep.Discarded, jobsIn("discarded")},
		{"logs", keep.Logs, of(jobstore.New, (*jobstore.Store).PruneLogs)},
		{"packed_logs", keep.Logs, of(jobstore.New, (*jobstore.Store).PrunePacks)},
		{"own_logs", overAlready, of(jobstore.New, (*jobstore.Store).PruneOwnLogs)},
		{"own_packed_logs", overAlready, of(jobstore.New, (*jobstore.Store).PruneOwnPacks)},
		{"throttles", overAlready, of(jobstore.New, (*jobstore.Store).PruneThrottles)},
		{"events", keep.Events, of(eventstore.New, (*eventstore.Store).Prune)},
		{"notifications", keep.Events, of(alerts.New, (*alerts.Store).PruneNotifications)},
		{"alerts", keep.Events, of(alerts.New, (*alerts.Store).Prune)},
		{"compactions", keep.Events, of(NewStore, (*Store).Prune)},
		{"audit", keep.Audit, of(access.NewAudit, (*access.Audit).Prune)},
		{"idempotency_keys", access.MinKeyRetention, of(access.NewKeys, (*access.Keys).Prune)},
		{"sessions", overAlready, of(access.NewTokens, (*access.Tokens).PruneSessions)},
		{"user_sessions", overAlready, of(access.NewUserSessions, (*access.UserSessions).Prune)},
		{"tokens", keep.Audit, of(access.NewTokens, (*access.Tokens).Prune)},
		{"configurations", keep.Audit, of(cronstore.New, (*cronstore.Store).PruneConfigs)},
		{"leader_history", keep.History, of(leaderstore.New, (*leaderstore.Store).PruneHistory)},
		{"queues", keep.Idle, of(jobstore.New, (*jobstore.Store).PruneQueues)},
		{"nodes", keep.Idle, of(nodestore.New, (*nodestore.Store).Prune)},
	}
	for _, step := range aggregator.Steps {
		sweeps = append(sweeps, sweep{
			"rollups_" + step.String(), cmp.Or(keep.Rollups[step], defaultRollups[step]),
			func(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
				return aggregator.NewStore(tx).Prune(ctx, step, before, limit)
			},
		})
	}
	return sweeps
}

var defaultRollups = map[aggregator.Step]time.Duration{
	aggregator.Minute: 24 * time.Hour, aggregator.FiveMinutes: 7 * 24 * time.Hour, aggregator.Hour: 90 * 24 * time.Hour,
}

// jobsIn deletes jobs that ended in a state.
func jobsIn(state string) batch {
	return func(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
		return jobstore.New(tx).PruneJobs(ctx, state, before, limit)
	}
}

// of deletes with a method of a store.
func of[S any](newStore func(postgres.DB) *S, prune func(store *S, ctx context.Context, before time.Time, limit int) (int64, error)) batch {
	return func(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
		return prune(newStore(tx), ctx, before, limit)
	}
}

// run makes one pass. If a sweep fails, the others still run; only the end of the
// term stops the pass.
func (p *pass) run(ctx context.Context) error {
	start := time.Now()
	p.record = Pass{
		Term: p.fence.Term, NodeID: p.fence.NodeID, Removed: map[string]int64{}, Failed: map[string]string{},
	}
	if err := p.sweepAll(ctx); err != nil {
		return err
	}
	if err := p.settle(ctx, "merge", 0, p.merge(ctx)); err != nil {
		return err
	}
	if err := p.settle(ctx, "indexes", 0, p.rebuild(ctx)); err != nil {
		return err
	}
	took := time.Since(start)
	var tables []Table
	err := p.do(ctx, func(tx pgx.Tx, _ time.Time) (err error) {
		if tables, err = NewStore(tx).Tables(ctx, ""); err != nil {
			return err
		}
		return NewStore(tx).Record(ctx, p.record, took, p.opts.Interval)
	})
	if err == nil {
		p.measure(took, tables)
	}
	return p.settle(ctx, "record", 0, err)
}

// sweepAll applies every retention.
func (p *pass) sweepAll(ctx context.Context) error {
	keep := p.retention()
	for _, table := range parted(keep) {
		if table.keep <= 0 {
			continue
		}
		deleted, err := p.tend(ctx, table)
		if err := p.settle(ctx, table.name, deleted, err); err != nil {
			return err
		}
	}
	for _, sweep := range sweeps(keep) {
		if sweep.keep <= 0 {
			continue
		}
		deleted, err := p.sweep(ctx, sweep)
		if err := p.settle(ctx, sweep.name, deleted, err); err != nil {
			return err
		}
	}
	deleted, err := p.sweepStray(ctx)
	return p.settle(ctx, strayLogs, deleted, err)
}

// settle logs the result of a sweep, and returns only errors that end the pass.
func (p *pass) settle(ctx context.Context, name string, deleted int64, err error) error {
	switch {
	case errors.Is(err, leaderstore.ErrDeposed) || ctx.Err() != nil:
		return err
	case err != nil:
		p.record.Failed[name] = err.Error()
		p.opts.Logger.WarnContext(ctx, "retention not applied", "of", name, "term", p.fence.Term, "error", err)
	}
	if deleted > 0 {
		p.record.Removed[name] = deleted
		p.opts.Logger.DebugContext(ctx, "retention applied", "of", name, "term", p.fence.Term, "deleted", deleted)
	}
	return nil
}

// sweep deletes batches until one is not full. The size of a batch follows its
// duration; a failed batch is retried with fewer rows.
func (p *pass) sweep(ctx context.Context, s sweep) (deleted int64, err error) {
	for tries := 1; ; {
		most, began := p.size.Next(), time.Now()
		rows, err := p.sweepBatch(ctx, s, most)
		switch {
		case err != nil && (over(ctx, err) || !passes(err) || tries == batchTries || most == 1):
			return deleted, err
		case err != nil:
			p.size.Failed()
			tries++
		default:
			p.size.Done(int(rows), time.Since(began), 0)
			deleted, tries = deleted+rows, 1
			if rows < int64(most) {
				return deleted, nil
			}
		}
		if err := p.pause(ctx, p.opts.Pause); err != nil {
			return deleted, err
		}
	}
}

// passes reports whether a failed batch may succeed with fewer rows: it took too
// long, or the connection was lost. Errors in the statement itself are permanent.
func passes(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || !strings.HasPrefix(refused.Code, "42")
}

// sweepBatch deletes at most most rows in one transaction.
func (p *pass) sweepBatch(ctx context.Context, s sweep, most int) (rows int64, err error) {
	err = p.do(ctx, func(tx pgx.Tx, now time.Time) error {
		var err error
		rows, err = s.batch(ctx, tx, now.Add(-s.keep), most)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("delete a batch of %s: %w", s.name, err)
	}
	return rows, nil
}

// sweepStray checks one batch of jobs per pass: stray output is rare, and the
// retention of logs deletes it in any case.
func (p *pass) sweepStray(ctx context.Context) (deleted int64, err error) {
	var last *int64
	err = p.do(ctx, func(tx pgx.Tx, _ time.Time) (err error) {
		last, deleted, err = jobstore.New(tx).PruneStrayLogs(ctx, p.strayAfter, p.opts.Batch)
		return err
	})
	if err != nil {
		return 0, err
	}
	p.strayAfter = 0
	if last != nil {
		p.strayAfter = *last
	}
	return deleted, nil
}

// do runs one fenced transaction, which gives way to other transactions.
func (p *pass) do(ctx context.Context, work func(tx pgx.Tx, now time.Time) error) error {
	watchdog.Extend(ctx, longBatch)
	return p.fence.Do(ctx, p.db, func(tx pgx.Tx, now time.Time) error {
		_, err := tx.Exec(ctx, mannersSQL, milliseconds(shortLock), milliseconds(longBatch/2))
		if err != nil {
			return fmt.Errorf("bound the waits of a batch: %w", err)
		}
		return work(tx, now)
	})
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (p *pass) pause(ctx context.Context, length time.Duration) error {
	if !watchdog.Sleep(ctx, length) {
		return ctx.Err()
	}
	return nil
}
