package aggregator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/rollupstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// fullInterval is how often every series is written, changed or not.
	fullInterval = time.Minute
	// longSum is how long adding up may take with many jobs and queues.
	longSum = time.Minute
	// retireAfter is how long a node that is gone keeps a row of its own.
	retireAfter = 24 * time.Hour
	// freshIntervals is how many reports a live node may miss before its gauges
	// no longer count.
	freshIntervals = 3
)

// Watch looks at the totals of a term.
type Watch interface {
	// See looks at the newest totals, of which it may keep the samples.
	See(ctx context.Context, totals Totals) error
	Close()
}

// Options are the settings of an Aggregator. All but Watch are required.
type Options struct {
	// Interval is the time between two sums: metrics.scrape_interval.
	Interval time.Duration
	// Metrics shows the cluster's counts to Prometheus while this node leads.
	Metrics *metrics.Metrics
	// Watch begins to look at the totals of a term. Without it nobody does.
	Watch  func(fence leaderstore.Fence) Watch
	Logger *slog.Logger
}

// Aggregator is the work of the leader of the role metrics_aggregator.
type Aggregator struct {
	db   Database
	opts Options
}

// Database is what an Aggregator works on: a *pgxpool.Pool.
type Database interface {
	leaderstore.Beginner
	Queryer
}

// New returns an Aggregator on a pool.
func New(db Database, opts Options) *Aggregator {
	return &Aggregator{db: db, opts: opts}
}

// Lead adds the cluster's metrics up, at once and at every interval, until ctx
// ends. It returns leaderstore.ErrDeposed when the term is over; other errors
// are logged, and the next sum makes up for what was missed.
func (a *Aggregator) Lead(ctx context.Context, fence leaderstore.Fence) error {
	for _, gauge := range a.opts.Metrics.Cluster {
		defer gauge.Reset()
	}
	ticker := time.NewTicker(a.opts.Interval)
	defer ticker.Stop()
	tenure := tenure{Aggregator: a, fence: fence, rolled: map[rollupstore.Step]time.Time{}}
	if a.opts.Watch != nil {
		tenure.watch = a.opts.Watch(fence)
		defer tenure.watch.Close()
	}
	for ctx.Err() == nil {
		progress.Allow(ctx, longSum)
		err := tenure.sum(ctx)
		switch {
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil && ctx.Err() == nil:
			a.opts.Logger.WarnContext(ctx, "cluster metrics not written", "term", fence.Term, "error", err)
		}
		progress.Await(ctx, ticker.C)
	}
	return nil
}

// tenure is what one term remembers: only what it wrote last, to write less.
type tenure struct {
	*Aggregator
	fence   leaderstore.Fence
	written sums
	full    time.Time // of the last full write, by the database's clock
	rolled  map[rollupstore.Step]time.Time
	watch   Watch // may be nil
	fresh   bool  // some node reported lately
}

func (t *tenure) sum(ctx context.Context) error {
	at, err := databaseNow(ctx, t.db)
	if err != nil {
		return err
	}
	total, err := t.read(ctx, t.db, at) // before the transaction, which is to be short
	if err != nil {
		return err
	}
	changed, full := changes(t.written, total), t.full
	isFull := at.Sub(t.full) >= fullInterval
	if isFull {
		full = at
		maps.Copy(changed, total)
	}
	err = t.fence.Do(ctx, t.db, func(tx pgx.Tx, _ time.Time) error {
		if isFull {
			if err := retire(ctx, tx, at.Add(-retireAfter)); err != nil {
				return err
			}
		}
		return writeSums(ctx, tx, changed.ordered(), at, t.fence.Term)
	})
	if err != nil {
		return err
	}
	t.export(total)
	t.written, t.full = total, full
	return errors.Join(t.roll(ctx, at), t.see(ctx, at, total))
}

// see lets the watch look at the totals. Where no node reports, as after an outage
// of the database, they say nothing of the cluster.
func (t *tenure) see(ctx context.Context, at time.Time, total sums) error {
	if t.watch == nil || !t.fresh {
		return nil
	}
	progress.Allow(ctx, longSum)
	return t.watch.See(ctx, Totals{At: at, Samples: slices.Collect(maps.Values(total))})
}

func (t *tenure) read(ctx context.Context, db Queryer, now time.Time) (sums, error) {
	freshAfter := now.Add(-freshIntervals * t.opts.Interval)
	nodes, err := readReports(ctx, db, freshAfter)
	if err != nil {
		return nil, err
	}
	t.fresh = slices.ContainsFunc(nodes, func(n nodeReport) bool { return n.fresh })
	vacant, err := readVacant(ctx, db, now)
	if err != nil {
		return nil, err
	}
	total := clusterSums(nodes, vacant)
	counts, err := countCluster(ctx, db, freshAfter)
	if err != nil {
		return nil, err
	}
	dangers, err := countHazards(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, sample := range append(counts, dangers...) {
		total.add(sample)
	}
	return total, nil
}

// export shows to Prometheus what only the leader knows.
func (t *tenure) export(total sums) {
	for key, sample := range t.written {
		if _, known := total[key]; !known && metrics.OfCluster(sample.Name) {
			t.opts.Metrics.Cluster[sample.Name].Delete(sample.Labels)
		}
	}
	for _, sample := range total {
		if gauge := t.opts.Metrics.Cluster[sample.Name]; gauge != nil {
			gauge.With(sample.Labels).Set(sample.Value)
		}
	}
}
