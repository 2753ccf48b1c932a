package rescue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/internal/batchsize"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// batch is the most jobs that one transaction moves.
	batch = 500
	// batchTarget is how long a transaction that moves jobs should take; each may
	// move fewer where they take longer.
	batchTarget = 500 * time.Millisecond
	// stepTimeout bounds a look and a transaction, so that a dead connection is
	// noticed.
	stepTimeout = 10 * time.Second
	// retryDelay is the pause after a step that failed.
	retryDelay = 250 * time.Millisecond
)

// Options is what a Rescuer needs; all are required but Along, and Policy,
// whose zero value means the defaults.
type Options struct {
	Pool    *pgxpool.Pool
	Metrics *metrics.Metrics
	Logger  *slog.Logger
	// Policy says when a node is dead.
	Policy nodestore.Policy
	// Along adds what another duty looks for to the look at the nodes, which comes
	// once a second at least: one round trip for both.
	Along func(batch *pgx.Batch)
}

// Rescuer makes due jobs available and gives the jobs of dead nodes back while
// its node leads the scheduler.
type Rescuer struct {
	options Options
	logger  *slog.Logger
}

// New returns a Rescuer.
func New(options Options) *Rescuer {
	options.Policy = options.Policy.WithDefaults()
	return &Rescuer{options: options, logger: options.Logger.With("part", "rescue")}
}

// Lead does both duties until ctx ends, and then returns nil, or until the
// database says that the term is over: leaderstore.ErrDeposed. Other failures
// are logged once and the work tried again.
func (r *Rescuer) Lead(ctx context.Context, fence leaderstore.Fence) error {
	due := &schedule{pool: r.options.Pool, fence: fence, size: newSize(), coming: make(chan time.Duration, 1)}
	orphans := &patrol{
		pool: r.options.Pool, fence: fence, metrics: r.options.Metrics, logger: r.logger.With("term", fence.Term),
		watch: watch{policy: r.options.Policy}, size: newSize(),
		along: []func(*pgx.Batch){due.ride, r.options.Along},
	}
	group, leading := errgroup.WithContext(ctx)
	group.Go(func() error { return r.repeat(leading, "due jobs", due.step, due.rest) })
	group.Go(func() error { return r.repeat(leading, "orphans", orphans.step, progress.Sleep) })
	err := group.Wait()
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// repeat takes step after step, each as long after the last as that one said.
func (r *Rescuer) repeat(ctx context.Context, duty string, step func(context.Context) (time.Duration, error), rest func(context.Context, time.Duration) bool) error {
	ctx, end := progress.Begin(ctx, duty)
	defer end()
	for failing := false; ; {
		progress.Report(ctx)
		pause, err := step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil && !failing:
			r.logger.WarnContext(ctx, "rescue failed, retrying", "duty", duty, "error", err)
		case err == nil && failing:
			r.logger.InfoContext(ctx, "rescue is back", "duty", duty)
		}
		if failing = err != nil; failing {
			pause = retryDelay
		}
		if !rest(ctx, pause) {
			return nil
		}
	}
}

func newSize() *batchsize.Size { return batchsize.New(batch, batchTarget) }
