package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// LargePartition is the size in bytes, including indexes, from which a
	// partition is only dropped as a whole. In smaller partitions expired rows are
	// deleted individually, which is cheap.
	LargePartition = 64 << 20

	// patientLock is how long other transactions may be blocked by a change of
	// partitions that waits for its lock, lockTries the number of attempts per
	// pass, and lockAgain the time between attempts.
	patientLock = 100 * time.Millisecond
	lockTries   = 3
	lockAgain   = time.Second

	// mostKept is the maximum number of rows of a partition that are kept when it
	// is dropped: other transactions wait while they are copied.
	mostKept = 10_000

	// nestedSQL makes a batch use the key's index, regardless of estimates.
	nestedSQL = `SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`
	// byIndexSQL makes plans use indexes, even before a partition's first ANALYZE.
	byIndexSQL = `SELECT set_config('enable_seqscan', 'off', true)`

	// longProof is the timeout for checking the end of a large last partition, once
	// per proveAgain: until it is known, no partitions are created.
	longProof  = 30 * time.Minute
	proveAgain = 24 * time.Hour

	// analyzeAgain is the interval of ANALYZE on the table: PostgreSQL's autovacuum
	// only analyzes partitions.
	analyzeAgain = 24 * time.Hour
)

// lateTick is how long after its tick a row may be recorded without being in the
// index of late rows (forge_cron_ticks_late).
const lateTick = time.Hour

// errCrowded means that more than mostKept rows of a partition have to be kept.
var errCrowded = errors.New("too much in it has to stay")

// partedTable is the retention of a table with partitions.
type partedTable struct {
	name   string // of the sweep
	keep   time.Duration
	table  string
	column string
	// rows deletes at most limit individual rows from from (inclusive) to to (exclusive).
	rows func(ctx context.Context, db postgres.DB, before, from, to time.Time, limit int) (int64, error)
	// slack is for how long after its retention a partition is kept.
	slack time.Duration
	// keeps means that some ticks have to be kept.
	keeps bool
}

// parted returns the tables with partitions.
func parted(keep Retention) []partedTable {
	return []partedTable{
		{
			name: "cron_ticks", keep: keep.CronTicks, table: "forge_cron_ticks", column: "tick",
			slack: lateTick, keeps: true,
			rows: func(ctx context.Context, db postgres.DB, before, from, to time.Time, limit int) (int64, error) {
				return cronstore.New(db).PruneTicks(ctx, before, from, to, limit)
			},
		},
		{
			name: "cluster_metrics", keep: keep.Metrics, table: "forge_metrics_cluster", column: "at",
			rows: func(ctx context.Context, db postgres.DB, before, from, to time.Time, limit int) (int64, error) {
				return aggregator.NewStore(db).PrunePoints(ctx, before, from, to, limit)
			},
		},
	}
}

// tend applies the retention of a table with partitions, and creates new
// partitions.
func (p *pass) tend(ctx context.Context, t partedTable) (deleted int64, err error) {
	layout, now, err := p.layout(ctx, t)
	if err != nil {
		return 0, err
	}
	var failed error
	crowded := false
	if layout.Owned() {
		failed = errors.Join(p.lengthen(ctx, t, layout, now), p.analyze(ctx, t))
		if over(ctx, failed) {
			return 0, failed
		}
		dropped, err := p.retire(ctx, t, now)
		deleted += dropped
		if crowded = errors.Is(err, errCrowded); !crowded {
			failed = errors.Join(failed, err)
		}
		if over(ctx, err) {
			return deleted, err
		}
		if layout, now, err = p.layout(ctx, t); err != nil {
			return deleted, err
		}
	}
	for _, span := range layout.Sweepable(now.Add(-t.keep), p.opts.LargePartition, crowded) {
		rows, err := p.sweep(ctx, sweep{t.name, t.keep, t.within(span)})
		deleted += rows
		if err != nil {
			return deleted, errors.Join(failed, err)
		}
	}
	return deleted, failed
}

// within deletes individual rows in a span.
func (t partedTable) within(span Span) batch {
	return func(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
		if _, err := tx.Exec(ctx, nestedSQL); err != nil {
			return 0, err
		}
		return t.rows(ctx, tx, before, span.From, span.To, limit)
	}
}

// over reports whether an error ends the pass.
func over(ctx context.Context, err error) bool {
	return errors.Is(err, leaderstore.ErrDeposed) || ctx.Err() != nil
}

func (p *pass) layout(ctx context.Context, t partedTable) (layout Layout, at time.Time, err error) {
	err = p.do(ctx, func(tx pgx.Tx, now time.Time) (err error) {
		at = now
		layout, err = NewStore(tx).Layout(ctx, t.table)
		return err
	})
	return layout, at, err
}

// lengthen creates partitions in advance by cutting the last one.
func (p *pass) lengthen(ctx context.Context, t partedTable, layout Layout, now time.Time) error {
	width, last := Width(t.keep), layout[len(layout)-1]
	if layout.Cuts(now, time.Time{}, width) == nil {
		return nil
	}
	var newest time.Time
	err := p.do(ctx, func(tx pgx.Tx, _ time.Time) (err error) {
		newest, err = NewStore(tx).Newest(ctx, last.Name, t.column)
		return err
	})
	if err != nil {
		return fmt.Errorf("look into the last partition of %s: %w", t.table, err)
	}
	cuts := layout.Cuts(now, newest, width)
	if last.Bytes >= p.opts.LargePartition {
		// If this process dies before the cut and no other completes it, the
		// partition rejects rows from that time on.
		cuts = layout.Cuts(now, latest(newest, now.Add(4*width)), width)
		if time.Since(p.proved[t.table]) < proveAgain {
			return p.withdraw(ctx, last)
		}
		if err := p.prove(ctx, t, last, cuts[0]); err != nil {
			return errors.Join(err, p.withdraw(ctx, last))
		}
	}
	err = p.reshape(ctx, func(tx pgx.Tx, _ time.Time) error {
		return NewStore(tx).Cut(ctx, t.table, last, cuts, patientLock)
	})
	if err != nil {
		return fmt.Errorf("make partitions of %s: %w", t.table, err)
	}
	return nil
}

// prove checks that a large partition ends before an instant. It reads the
// partition outside any transaction, as a rebuild of an index does, because that
// may take long.
func (p *pass) prove(ctx context.Context, t partedTable, last Partition, end time.Time) error {
	err := p.reshape(ctx, func(tx pgx.Tx, _ time.Time) error {
		return NewStore(tx).Promise(ctx, last.Name, t.column, end, patientLock)
	})
	if err != nil {
		return err
	}
	p.proved[t.table] = time.Now()
	watchdog.Extend(ctx, longProof+longBatch)
	bounded, cancel := context.WithTimeout(ctx, longProof)
	defer cancel()
	return NewStore(p.db).Prove(bounded, last.Name)
}

// withdraw removes the constraint of a failed or interrupted cut; a completed cut
// has removed it.
func (p *pass) withdraw(ctx context.Context, last Partition) error {
	return p.reshape(ctx, func(tx pgx.Tx, _ time.Time) error {
		return NewStore(tx).Withdraw(ctx, last.Name, patientLock)
	})
}

// retire drops the partitions that are completely expired, and keeps the rows that
// have to be kept.
func (p *pass) retire(ctx context.Context, t partedTable, now time.Time) (dropped int64, err error) {
	err = p.reshape(ctx, func(tx pgx.Tx, _ time.Time) error {
		dropped = 0
		layout, err := NewStore(tx).Layout(ctx, t.table)
		if err != nil {
			return err
		}
		before := now.Add(-t.keep)
		gone := layout[:layout.Expired(before.Add(-t.slack), p.opts.LargePartition)]
		if len(gone) == 0 {
			return nil
		}
		keep, err := p.keeper(ctx, tx, t, gone, before)
		if err != nil {
			return err
		}
		kept, err := NewStore(tx).Retire(ctx, t.table, gone, patientLock, keep)
		for _, partition := range gone {
			dropped += partition.Rows
		}
		dropped = max(0, dropped-kept)
		failpoint.Hit("compactor/before-drop")
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("drop partitions of %s: %w", t.table, err)
	}
	return dropped, nil
}

// keeper determines, before other transactions have to wait, which rows of some
// partitions have to be kept, and returns a function that copies them. errCrowded
// means that copying would take too long.
func (p *pass) keeper(ctx context.Context, tx pgx.Tx, t partedTable, gone []Partition, before time.Time) (Keep, error) {
	if _, err := tx.Exec(ctx, byIndexSQL); err != nil {
		return nil, err
	}
	if !t.keeps {
		return func(context.Context, string, string) (int64, error) { return 0, nil }, nil
	}
	quiet, sum := map[string][]string{}, int64(0)
	for _, partition := range gone {
		kept, crons, err := cronstore.New(tx).StayingTicks(ctx, partition.Name, before, gone[len(gone)-1].To)
		if err != nil {
			return nil, fmt.Errorf("look for what has to stay: %w", err)
		}
		quiet[partition.Name], sum = crons, sum+kept
	}
	if sum > mostKept {
		return nil, errCrowded
	}
	return func(ctx context.Context, from, to string) (int64, error) {
		return cronstore.New(tx).KeepTicks(ctx, from, to, before, quiet[from])
	}, nil
}

// reshape runs one fenced transaction that changes partitions, and retries while
// other transactions block it.
func (p *pass) reshape(ctx context.Context, work func(tx pgx.Tx, now time.Time) error) error {
	for try := 1; ; try++ {
		err := p.do(ctx, work)
		if !errors.Is(err, ErrBusy) || try == lockTries {
			return err
		}
		if err := p.pause(ctx, lockAgain); err != nil {
			return err
		}
	}
}

// analyze updates the statistics over all partitions for the planner. It does not
// run in a fenced transaction, because it changes no data.
func (p *pass) analyze(ctx context.Context, t partedTable) error {
	if time.Since(p.analyzed[t.table]) < analyzeAgain {
		return nil
	}
	p.analyzed[t.table] = time.Now()
	watchdog.Extend(ctx, longRebuild+longBatch)
	bounded, cancel := context.WithTimeout(ctx, longRebuild)
	defer cancel()
	if _, err := p.db.Exec(bounded, "ANALYZE "+t.table); err != nil {
		return fmt.Errorf("analyze %s: %w", t.table, err)
	}
	return nil
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
