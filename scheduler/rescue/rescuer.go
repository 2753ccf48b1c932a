package rescue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// batch is the maximum number of jobs that one transaction moves.
	batch = 500
	// batchTarget is the target duration of a transaction. Slower transactions get fewer
	// jobs.
	batchTarget = 500 * time.Millisecond
	// stepTimeout is the time limit of a check and of a transaction, so that a dead
	// connection is noticed.
	stepTimeout = 10 * time.Second
	// retryDelay is the pause after a failed step.
	retryDelay = 250 * time.Millisecond
)

// Options are the dependencies of a Rescuer. All are required except Piggyback and
// Policy; the zero Policy means the defaults.
type Options struct {
	Pool    *pgxpool.Pool
	Metrics *metrics.Metrics
	Logger  *slog.Logger
	// Policy decides when a node is dead.
	Policy nodestore.Policy
	// Piggyback adds a query of another part to the check of the nodes, which runs at
	// least once a second, to save a round trip.
	Piggyback func(batch *pgx.Batch)
}

// Rescuer makes due jobs available, and releases the jobs of dead nodes, while this node
// leads the scheduler.
type Rescuer struct {
	options Options
	logger  *slog.Logger
}

// New returns a Rescuer.
func New(options Options) *Rescuer {
	options.Policy = options.Policy.WithDefaults()
	return &Rescuer{options: options, logger: options.Logger.With("part", "rescue")}
}

// Lead runs the parts until ctx ends or the term is over. It returns nil if ctx ended,
// and leaderstore.ErrDeposed if the database reports that the term is over. It retries
// after other failures, and logs only the first of consecutive ones.
func (r *Rescuer) Lead(ctx context.Context, fence leaderstore.Fence) error {
	due := &dueReleaser{pool: r.options.Pool, fence: fence, size: newSize(), nextDue: make(chan time.Duration, 1)}
	orphans := &nodeMonitor{
		pool: r.options.Pool, fence: fence, metrics: r.options.Metrics, logger: r.logger.With("term", fence.Term),
		silence: silenceDetector{policy: r.options.Policy}, size: newSize(),
		piggybacked: []func(*pgx.Batch){due.piggyback, r.options.Piggyback},
	}
	store := jobstore.New(r.options.Pool)
	claims := &blockCleaner{
		clean: store.ForgetClaims, vacuum: store.VacuumClaims, size: postgres.NewBatchSize(cleanedBlocks, batchTarget), pause: claimInterval,
	}
	windows := &blockCleaner{clean: store.ForgetWindows, size: postgres.NewBatchSize(cleanedBlocks, batchTarget), pause: windowInterval}
	statistics := &analyzer{analyze: store.AnalyzeGrown}
	group, leading := errgroup.WithContext(ctx)
	group.Go(func() error { return r.repeat(leading, "due jobs", due.step, due.rest) })
	group.Go(func() error { return r.repeat(leading, "orphans", orphans.step, watchdog.Sleep) })
	group.Go(func() error { return r.repeat(leading, "claims", claims.step, watchdog.Sleep) })
	group.Go(func() error { return r.repeat(leading, "rate windows", windows.step, watchdog.Sleep) })
	group.Go(func() error { return r.repeat(leading, "statistics", statistics.step, watchdog.Sleep) })
	err := group.Wait()
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// repeat calls step repeatedly, with the pause that the last call returned.
func (r *Rescuer) repeat(ctx context.Context, part string, step func(context.Context) (time.Duration, error), rest func(context.Context, time.Duration) bool) error {
	ctx, end := watchdog.Begin(ctx, part)
	defer end()
	for failing := false; ; {
		watchdog.Report(ctx)
		pause, err := step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil && !failing:
			r.logger.WarnContext(ctx, "rescue failed, retrying", "duty", part, "error", err)
		case err == nil && failing:
			r.logger.InfoContext(ctx, "rescue works again", "duty", part)
		}
		if failing = err != nil; failing {
			pause = retryDelay
		}
		if !rest(ctx, pause) {
			return nil
		}
	}
}

func newSize() *postgres.BatchSize { return postgres.NewBatchSize(batch, batchTarget) }
