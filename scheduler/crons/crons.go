package crons

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/tracing"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// Inserter inserts and cancels jobs in a transaction. InsertMany returns the ids of the
// jobs in order. Cancel returns no error for a job that has ended or does not exist.
type Inserter interface {
	InsertMany(ctx context.Context, tx pgx.Tx, jobs []jobstore.NewJob) ([]int64, error)
	Cancel(ctx context.Context, tx pgx.Tx, id int64) error
}

// Options are the dependencies of a Firer. All are required except Assigner and Tracer.
type Options struct {
	Pool     *pgxpool.Pool
	Inserter Inserter
	Metrics  *metrics.Metrics
	Logger   *slog.Logger
	// Schema is the prefix of the channel names.
	Schema string
	// Notifier receives notifications.
	Notifier *postgres.Notifier
	// Assigner offers the jobs of prepared ticks to nodes in the transaction of the ticks. If
	// it is nil, the jobs are offered once it has committed.
	Assigner *assign.Assigner
	// Tracer creates a span for each tick; nil means none.
	Tracer *tracing.Tracer
}

// Firer fires crons while this node leads the scheduler's role.
type Firer struct {
	options Options
	meter   *meter
	cache   *termCache // used by one Lead at a time
}

// New returns a Firer that does nothing until Lead is called.
func New(options Options) *Firer {
	return &Firer{options: options, meter: newMeter(options.Metrics), cache: newTermCache()}
}

// Lead fires crons for a term until ctx ends or the term is over. It returns nil if ctx
// ended, and leaderstore.ErrDeposed if the term is over. Once it has started, it logs and
// retries database errors. Only one Lead may run at a time. All goroutines that Lead
// starts have stopped when it returns.
func (f *Firer) Lead(ctx context.Context, fence leaderstore.Fence) error {
	logger := f.options.Logger.With("role", fence.Role, "node", fence.NodeID, "term", fence.Term)
	ctx, end := watchdog.Begin(ctx, "crons")
	defer end()
	changes := make(chan struct{}, 1)
	listening, stop := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		f.listen(watchdog.Detach(listening), wire.Channel(f.options.Schema, wire.CronChannel), changes)
	})
	defer func() {
		stop()
		waiting.Wait()
	}()
	tickLedger := newLedger(f.options, fence, f.cache, f.meter, logger)
	loop := newFireLoop(tickLedger, f.cache, f.meter, logger)
	return ignoreEnd(ctx, loop.run(ctx, changes))
}

// ignoreEnd returns nil if ctx has ended, and err otherwise.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// listen signals changes of the definitions until ctx ends. A notification without a change
// is ignored. If the definitions cannot be read, it signals a change, because the loop
// retries and logs failures.
func (f *Firer) listen(ctx context.Context, channel string, changes chan<- struct{}) {
	notified, unsubscribe := f.options.Notifier.Changes(channel)
	defer unsubscribe()
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-notified:
		}
		edition, err := cronstore.New(f.options.Pool).Edition(ctx)
		if err != nil || edition != last {
			select {
			case changes <- struct{}{}:
			default: // a signal is already pending
			}
		}
		last = edition
	}
}

// meter updates the metrics of committed ticks.
type meter struct{ metrics *metrics.Metrics }

func newMeter(m *metrics.Metrics) *meter { return &meter{metrics: m} }

// initSeries sets the series of crons to 0.
func (m *meter) initSeries(crons []cronstore.Upcoming) {
	names := make([]string, len(crons))
	for i, c := range crons {
		names[i] = c.Name
	}
	m.metrics.InitCrons(names)
	for _, name := range names {
		m.metrics.CronDelay.WithLabelValues(m.metrics.CronLabel(name))
	}
}

// count adds committed rows to the metrics. now is the database's time.
func (m *meter) count(rows []cronstore.Tick, now time.Time) {
	for _, row := range rows {
		label, number := m.metrics.CronLabel(row.Cron), float64(row.Count)
		m.metrics.CronTicks.WithLabelValues(label, string(row.Verdict)).Add(number)
		if row.Verdict.Fires() {
			m.metrics.CronRuns.WithLabelValues(label).Add(number)
			m.metrics.CronDelay.WithLabelValues(label).Observe(row.Late(now).Seconds())
		}
		if row.Verdict == cronstore.SkippedWindow || row.Verdict == cronstore.SkippedLimit {
			m.metrics.CronMissed.WithLabelValues(label).Add(number)
		}
		if row.Verdict == cronstore.Failed {
			m.metrics.CronFailures.WithLabelValues(label).Add(number)
		}
	}
}
