package aggregator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// fullInterval is how often every series is written, even if it did not change.
	fullInterval = time.Minute
	// longSum is how long a sum may take in a cluster with many jobs and queues. One of which a
	// statement gets no answer ends after sumTimeout.
	longSum    = time.Minute
	sumTimeout = 2 * longSum
	// retireAfter is how long the row of a node that is gone is kept.
	retireAfter = 24 * time.Hour
	// freshIntervals is how many reports a live node may miss before its gauges no
	// longer count.
	freshIntervals = 3
	// countedPerSecond is the mean number of unfinished jobs that are counted per second.
	countedPerSecond = 10_000
	// maxCountPages bounds the pages of that many jobs that one sum reads.
	maxCountPages = 12
)

// Watch evaluates the totals of a term.
type Watch interface {
	// See receives the newest totals, and may keep the samples.
	See(ctx context.Context, totals Totals) error
	Close()
}

// Options are the settings of an Aggregator. All but Watch are required.
type Options struct {
	// Interval is the time between two sums: metrics.scrape_interval.
	Interval time.Duration
	// Metrics exports the cluster's gauges to Prometheus while this node leads.
	Metrics *metrics.Metrics
	// Watch returns the Watch of a term; nil: none.
	Watch  func(fence leaderstore.Fence) Watch
	Logger *slog.Logger
}

// Aggregator does the work of the leader of the role metrics_aggregator.
type Aggregator struct {
	db   postgres.DB
	opts Options
}

// New returns an Aggregator for a database.
func New(db postgres.DB, opts Options) *Aggregator {
	return &Aggregator{db: db, opts: opts}
}

// Lead sums the cluster's metrics, at once and at every interval, until ctx ends.
// It returns leaderstore.ErrDeposed when the term has ended; other errors are
// logged, and the next sum includes what was missed.
func (a *Aggregator) Lead(ctx context.Context, fence leaderstore.Fence) error {
	for _, gauge := range a.opts.Metrics.Cluster {
		defer gauge.Reset()
	}
	ticker := time.NewTicker(a.opts.Interval)
	defer ticker.Stop()
	tenure := tenure{Aggregator: a, fence: fence, rolled: map[Step]time.Time{}}
	if a.opts.Watch != nil {
		tenure.watch = a.opts.Watch(fence)
		defer tenure.watch.Close()
	}
	for ctx.Err() == nil {
		watchdog.Extend(ctx, longSum)
		summing, cancel := context.WithTimeout(ctx, sumTimeout)
		err := tenure.sum(summing)
		cancel()
		switch {
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil && ctx.Err() == nil:
			a.opts.Logger.WarnContext(ctx, "cluster metrics not written", "term", fence.Term, "error", err)
		}
		watchdog.Await(ctx, ticker.C)
	}
	return nil
}

// tenure is the memory of one term: only the sums that it wrote last, so that it
// writes only changes.
type tenure struct {
	*Aggregator
	fence   leaderstore.Fence
	written sums
	full    time.Time // of the last complete write, by the database's clock
	depths  depths
	rolled  map[Step]time.Time
	watch   Watch // may be nil
	fresh   bool  // whether some node has reported recently
}

func (t *tenure) sum(ctx context.Context) error {
	at, err := postgres.Now(ctx, t.db)
	if err != nil {
		return err
	}
	total, err := t.read(ctx, t.db, at) // before the transaction, which has to be short
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
		newest, err := NewStore(tx).instant(ctx, newestPointSQL)
		if err != nil {
			return fmt.Errorf("read the time of the newest totals: %w", err)
		}
		if newest.After(at) {
			full = time.Time{} // the first write after the wait has all series
			return nil
		}
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

// see passes the totals to the watch. If no node reports, for example after an
// outage of the database, the totals do not describe the cluster and are not passed
// on.
func (t *tenure) see(ctx context.Context, at time.Time, total sums) error {
	if t.watch == nil || !t.fresh {
		return nil
	}
	watchdog.Extend(ctx, longSum)
	return t.watch.See(ctx, Totals{At: at, Samples: slices.Collect(maps.Values(total))})
}

func (t *tenure) read(ctx context.Context, db postgres.DB, now time.Time) (sums, error) {
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
	queued, err := t.depths.get(ctx, db, now)
	if err != nil {
		return nil, err
	}
	counts, err := countNodes(ctx, db, freshAfter)
	if err != nil {
		return nil, err
	}
	dangers, err := countHazards(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, sample := range slices.Concat(queued, counts, dangers) {
		total.add(sample)
	}
	return total, nil
}

// export sets the gauges that only the leader exports to Prometheus.
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

// roll writes the windows that have ended, each in its own transaction: after a
// time without a leader there may be many.
func (t *tenure) roll(ctx context.Context, now time.Time) error {
	// No further sum is written for a window that has ended by the database's
	// clock: this term sums later, and other terms are fenced.
	for _, step := range Steps {
		for ctx.Err() == nil && !t.rolled[step].Add(time.Duration(step)).After(now) {
			watchdog.Extend(ctx, longSum)
			end, err := t.rollNext(ctx, step, now)
			if err != nil {
				return err
			}
			if end.IsZero() { // check again when the next window can have ended
				t.rolled[step] = step.Start(now)
				break
			}
			t.rolled[step] = end
		}
	}
	return nil
}

// rollNext writes the next window of a step; the zero time means that none has
// ended. It reads first, so that the transaction is as short as possible: the
// server ends a transaction that is idle because its process waits for a processor.
func (t *tenure) rollNext(ctx context.Context, step Step, now time.Time) (end time.Time, err error) {
	from := t.rolled[step]
	if from.IsZero() {
		last, err := NewStore(t.db).Last(ctx, step)
		if err != nil {
			return time.Time{}, err
		}
		if !last.IsZero() {
			from = last.Add(time.Duration(step))
		}
	}
	next, err := NewStore(t.db).Next(ctx, step, from, now, holds(t.opts.Interval))
	if err != nil || next.End.IsZero() {
		return time.Time{}, err
	}
	err = t.fence.Do(ctx, t.db, func(tx pgx.Tx, _ time.Time) error { return NewStore(tx).Write(ctx, next) })
	return next.End, err
}

// holds returns how long a sum is valid: until it should have been written again.
func holds(interval time.Duration) time.Duration { return max(fullInterval, interval) + interval }
