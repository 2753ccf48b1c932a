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

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/auditstore"
	"github.com/forge-scheduler/forge/internal/batchsize"
	"github.com/forge-scheduler/forge/internal/compactstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/keystore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/outbox"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/rollupstore"
	"github.com/forge-scheduler/forge/internal/tokenstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// longBatch is how long one batch may take on a slow disk.
	longBatch = time.Minute
	// batchTarget is how long a batch should take; the next ones are smaller where they
	// take longer, and after one that failed.
	batchTarget = time.Second
	// batchTries is how often a pass tries the next batch of a table, smaller each time.
	batchTries = 4
	// shortLock is how long a batch waits for others: it is the one to step back.
	shortLock = 200 * time.Millisecond
)

// LeastIndex is from which size on, in bytes, an index may be worth building anew.
const LeastIndex = 8 << 20

const mannersSQL = `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`

// Retention is how long things are kept once they are over. 0 means for ever,
// save for Metrics, Rollups and Idle.
type Retention struct {
	Completed time.Duration // jobs and their output, from their end
	Cancelled time.Duration
	Discarded time.Duration
	Logs      time.Duration // output of jobs, also of those that are kept, unless it has its own retention
	CronTicks time.Duration // the ledger
	Events    time.Duration // and notifications and alerts, from their end
	Audit     time.Duration // the audit log, and tokens from their end
	History   time.Duration // tenures of leaders: cluster.leader_election.history_retention
	// Metrics is for the cluster's sums. Default: 24 h; the rollups keep more.
	Metrics time.Duration
	// Rollups are by the length of their windows. Default: 24 h, 7 and 90 days.
	Rollups map[rollupstore.Step]time.Duration
	// Idle is for the rows of queues that no node has worked and of nodes that
	// left or died. Default: 24 h.
	Idle time.Duration
}

// Options are the settings of a Compactor. Only Retention and Logger are
// required.
type Options struct {
	// Retention is asked at the start of each pass: it may change meanwhile.
	Retention func() Retention
	Logger    *slog.Logger
	// Metrics counts what passes did and what the fence refused. Default: nobody
	// does.
	Metrics *metrics.Metrics
	// Interval between the starts of two passes, each of which costs some twenty
	// transactions although it finds nothing. Default: 5 minutes.
	Interval time.Duration
	// Delay of the first pass: a take-over has better things to do. Default: 1 s.
	Delay time.Duration
	// Batch is the most rows that one transaction deletes, output of deleted
	// jobs not counted. Default: 1,000.
	Batch int
	// Pause between two batches. Default: 100 ms.
	Pause time.Duration
	// Quiet is how long an attempt that is over has written nothing before its
	// output is merged: its node may be about to. Default: 5 minutes.
	Quiet time.Duration
	// LeastIndex is how large an index must be, in bytes, for it to be built anew
	// when little of it is used. Default: the constant of that name.
	LeastIndex int64
	// LargePartition is from which size on, in bytes, a partition goes as a whole.
	// Default: the constant of that name.
	LargePartition int64
}

// Compactor is the work of the leader of the role log_compactor.
type Compactor struct {
	db   Database
	opts Options
}

// Database is what a Compactor works on: a *pgxpool.Pool.
type Database interface {
	leaderstore.Beginner
	compactstore.Database
}

// New returns a Compactor on a pool.
func New(db Database, opts Options) *Compactor {
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

// Lead makes passes until ctx ends, also in the midst of one. It returns
// leaderstore.ErrDeposed when the term is over; other errors are logged, and the
// next pass tries again.
func (c *Compactor) Lead(ctx context.Context, fence leaderstore.Fence) error {
	defer c.forgetMeasures()
	next := time.NewTimer(c.opts.Delay)
	defer next.Stop()
	pass := c.newPass(fence)
	for {
		if !progress.Await(ctx, next.C) {
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
		Compactor: c, fence: fence, size: batchsize.New(c.opts.Batch, batchTarget), merging: batchsize.New(c.opts.Batch, batchTarget),
		rebuilt: map[string]time.Time{}, analyzed: map[string]time.Time{}, proved: map[string]time.Time{},
	}
}

// pass goes through the sweeps in the name of one term.
type pass struct {
	*Compactor
	fence leaderstore.Fence
	// size is how many rows the next batch deletes, merging how many chunks it packs.
	size, merging *batchsize.Size
	// strayAfter is the job at which the search for stray output goes on.
	strayAfter int64
	// rebuilt is when each index was built anew.
	rebuilt map[string]time.Time
	// analyzed is when each table with partitions was, and proved when its last one was
	// read for where it ends.
	analyzed, proved map[string]time.Time
	// record is what this pass has done so far.
	record compactstore.Pass
}

// batch deletes at most limit rows that ended before an instant.
type batch func(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (deleted int64, err error)

// sweep is the retention of one table.
type sweep struct {
	name string
	keep time.Duration
	batch
}

// strayLogs is what sweepStray removes.
const strayLogs = "stray_logs"

// overAlready is for rows that carry the instant at which their retention ends.
const overAlready = time.Microsecond

// retention is what is asked for, with the defaults.
func (c *Compactor) retention() Retention {
	keep := c.opts.Retention()
	keep.Metrics = cmp.Or(keep.Metrics, 24*time.Hour)
	keep.Idle = cmp.Or(keep.Idle, 24*time.Hour)
	return keep
}

// sweeps are those of the tables without partitions.
func sweeps(keep Retention) []sweep {
	sweeps := []sweep{
		{"completed_jobs", keep.Completed, statement(jobsSQL, "completed")},
		{"cancelled_jobs", keep.Cancelled, statement(jobsSQL, "cancelled")},
		{"discarded_jobs", keep.Discarded, statement(jobsSQL, "discarded")},
		{"logs", keep.Logs, statement(logsSQL)},
		{"packed_logs", keep.Logs, statement(packedLogsSQL)},
		{"own_logs", overAlready, statement(ownLogsSQL)},
		{"own_packed_logs", overAlready, statement(ownPackedLogsSQL)},
		{"events", keep.Events, func(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
			return eventstore.Prune(ctx, tx, before, limit)
		}},
		{"notifications", keep.Events, outbox.Prune},
		{"alerts", keep.Events, alertstore.Prune},
		{"compactions", keep.Events, compactstore.Prune},
		{"audit", keep.Audit, auditstore.Prune},
		{"idempotency_keys", keystore.Keep, keystore.Prune},
		{"sessions", overAlready, tokenstore.PruneSessions},
		{"tokens", keep.Audit, tokenstore.PruneTokens},
		{"leader_history", keep.History, statement(historySQL)},
		{"queues", keep.Idle, statement(queuesSQL)},
		{"nodes", keep.Idle, statement(nodesSQL)},
	}
	for _, step := range rollupstore.Steps {
		sweeps = append(sweeps, sweep{
			"rollups_" + step.String(), cmp.Or(keep.Rollups[step], defaultRollups[step]),
			func(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
				return rollupstore.Prune(ctx, tx, step, before, limit)
			},
		})
	}
	return sweeps
}

var defaultRollups = map[rollupstore.Step]time.Duration{
	rollupstore.Minute: 24 * time.Hour, rollupstore.FiveMinutes: 7 * 24 * time.Hour, rollupstore.Hour: 90 * 24 * time.Hour,
}

func statement(sql string, more ...any) batch {
	return func(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
		tag, err := tx.Exec(ctx, sql, append([]any{before, limit}, more...)...)
		return tag.RowsAffected(), err
	}
}

// run makes one pass. A sweep that fails does not keep the others from theirs;
// only the end of the term does.
func (p *pass) run(ctx context.Context) error {
	start := time.Now()
	p.record = compactstore.Pass{
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
	var tables []compactstore.Table
	err := p.do(ctx, func(tx pgx.Tx, _ time.Time) (err error) {
		if tables, err = compactstore.Tables(ctx, tx); err != nil {
			return err
		}
		return compactstore.Record(ctx, tx, p.record, took, p.opts.Interval)
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

// settle logs what a sweep came to, and returns the errors that end the pass.
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

// sweep deletes batch by batch until one is not full. Each batch is as large as it can
// be in a short time; one that failed is tried again with fewer rows.
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

// passes says whether a batch that failed may do better with fewer rows: it took too
// long, or the connection was lost. What is wrong with the statement does not pass.
func passes(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || !strings.HasPrefix(refused.Code, "42")
}

// sweepBatch deletes at most so many rows in one transaction.
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

// sweepStray looks at one batch of jobs a pass: stray output is rare, and the
// retention of logs takes it in any case.
func (p *pass) sweepStray(ctx context.Context) (deleted int64, err error) {
	var last *int64
	err = p.do(ctx, func(tx pgx.Tx, _ time.Time) error {
		return tx.QueryRow(ctx, strayLogsSQL, p.strayAfter, p.opts.Batch).Scan(&last, &deleted)
	})
	if err != nil {
		return 0, fmt.Errorf("delete stray output: %w", err)
	}
	p.strayAfter = 0
	if last != nil {
		p.strayAfter = *last
	}
	return deleted, nil
}

// do makes one fenced transaction, which gives way to those of others.
func (p *pass) do(ctx context.Context, work func(tx pgx.Tx, now time.Time) error) error {
	progress.Allow(ctx, longBatch)
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
	if !progress.Sleep(ctx, length) {
		return ctx.Err()
	}
	return nil
}
