package aggregator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const previousSQL = `
SELECT samples
FROM forge_metrics_nodes
WHERE node_id = $1
FOR UPDATE`

// A fenced process must not count in addition to its successor.
const reportSQL = `
INSERT INTO forge_metrics_nodes (node_id, incarnation, at, samples, every)
SELECT node_id, incarnation, clock_timestamp(), $3::jsonb, $4
FROM forge_nodes
WHERE node_id = $1 AND incarnation = $2 AND fenced_at IS NULL
ON CONFLICT (node_id) DO UPDATE
SET incarnation = excluded.incarnation, at = excluded.at, samples = excluded.samples, every = excluded.every`

// reportTimeout limits each read of records of enqueued jobs, and the write of the metrics. It is
// long because a read deletes the records: if it is given up just as the server finishes it, the
// jobs are not counted.
const reportTimeout = 30 * time.Second

// lastReportTimeout bounds the report of an ending process. Tests that check this
// report allow more time.
var lastReportTimeout = 2 * time.Second

// ReporterOptions are the settings of a Reporter. All fields are required.
type ReporterOptions struct {
	NodeID      string
	Incarnation string
	// Interval is the time between two reports: metrics.scrape_interval.
	Interval time.Duration
	Metrics  *metrics.Metrics
	Logger   *slog.Logger
}

// Reporter writes a node's metrics into its row.
type Reporter struct {
	db   postgres.DB
	opts ReporterOptions
	// base is known once the first report was written.
	base    []metrics.Sample
	carried bool
}

// NewReporter returns the Reporter of one incarnation of a node.
func NewReporter(db postgres.DB, opts ReporterOptions) *Reporter {
	return &Reporter{db: db, opts: opts}
}

// Run reports at once, at every interval and, for the last time, when ctx ends. A
// failed report is logged; the next one includes its content. The last report reads no
// records of enqueued jobs: another node counts them. Nothing is written while this
// incarnation is not in forge_nodes.
func (r *Reporter) Run(ctx context.Context) error {
	ticker := time.NewTicker(r.opts.Interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.log(ctx, r.try(ctx))
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastReportTimeout)
	defer cancel()
	r.log(last, r.report(last))
	return nil
}

func (r *Reporter) log(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		r.opts.Logger.WarnContext(ctx, "metrics not reported", "error", err)
	}
}

// try first writes a report if none was written: the kinds that it carries keep their labels.
func (r *Reporter) try(ctx context.Context) error {
	if !r.carried {
		if err := r.report(ctx); err != nil {
			return err
		}
	}
	return errors.Join(r.countEnqueued(ctx), r.report(ctx))
}

// maxTakes bounds the reads of records of jobs in one report.
const maxTakes = 100

// countEnqueued counts the jobs that processes without metrics have inserted, and those that
// SQL functions have. Each is counted by the node that reads it first.
func (r *Reporter) countEnqueued(ctx context.Context) error {
	store := jobstore.New(r.db)
	more, err := r.count(ctx, func(ctx context.Context) ([]jobstore.KindCount, bool, error) {
		counts, err := store.TakeEnqueued(ctx)
		return counts, true, err
	})
	for range maxTakes {
		if err != nil || !more {
			break
		}
		more, err = r.count(ctx, store.TakeSQLEnqueued)
	}
	return err
}

// count counts the jobs that take returns. If the process ends meanwhile, take gets some time to
// return them, because it has deleted their records.
func (r *Reporter) count(ctx context.Context, take func(context.Context) ([]jobstore.KindCount, bool, error)) (more bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	taking, cancel := outlast(ctx)
	defer cancel()
	counts, more, err := take(taking)
	for _, enqueued := range counts {
		r.opts.Metrics.JobEnqueued.WithLabelValues(r.opts.Metrics.KindLabel(enqueued.Kind)).Add(float64(enqueued.Jobs))
	}
	return more, err
}

// outlast returns a context that ends some time after ctx at the latest.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastReportTimeout, cancel) })
	return longer, func() { stop(); cancel() }
}

func (r *Reporter) report(ctx context.Context) error {
	samples, err := r.opts.Metrics.Snapshot()
	if err != nil {
		return err
	}
	samples = reportable(samples)
	writing, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if !r.carried {
		return r.reportFirst(writing, samples)
	}
	_, err = r.write(writing, r.db, samples)
	return err
}

// reportFirst reads the counts of an earlier process and writes them together with
// the samples, in one transaction, so that the row cannot be retired in between.
func (r *Reporter) reportFirst(ctx context.Context, samples []metrics.Sample) error {
	var written bool
	err := pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		previous, _, err := postgres.First(ctx, tx, "read the node's last metrics", pgx.RowTo[report], previousSQL, r.opts.NodeID)
		if err != nil {
			return err
		}
		r.base = carry(previous, r.opts.Metrics.Instance)
		for _, sample := range r.base { // otherwise each process would add further kinds
			if sample.Name == metrics.JobEnqueuedName {
				r.opts.Metrics.KindLabel(sample.Labels["kind"])
			}
		}
		written, err = r.write(ctx, tx, samples)
		return err
	})
	r.carried = err == nil && written
	return err
}

func (r *Reporter) write(ctx context.Context, db postgres.DB, samples []metrics.Sample) (written bool, err error) {
	body := report{Instance: r.opts.Metrics.Instance, Base: r.base, Samples: samples, Clock: time.Now(), Began: r.opts.Metrics.Began}
	rows, err := postgres.Affected(ctx, db, "write the node's metrics", reportSQL, r.opts.NodeID, r.opts.Incarnation, body, r.opts.Interval)
	return rows == 1, err
}
