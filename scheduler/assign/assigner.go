package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/hearing"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// offerTimeout is how long an offered job may stay unclaimed before it is
	// offered again.
	offerTimeout = 500 * time.Millisecond
	// askInterval spaces the questions to a member that does not answer.
	askInterval = time.Second
	// safetyInterval is the longest between two sweeps, for what no
	// notification told.
	safetyInterval = 2 * time.Second
	// rosterInterval is the longest between two looks at forge_nodes.
	rosterInterval = 10 * time.Second
	// lookahead is how far ahead of its time an available job is noticed. It
	// exceeds River's five seconds.
	lookahead = 10 * time.Second
	// turnGap is the least time from one turn to the next: under load,
	// notifications are taken in bundles.
	turnGap = 2 * time.Millisecond
	// fruitlessGap is the same while a backlog is read that no member can take.
	fruitlessGap = 20 * time.Millisecond
	// statementTimeout bounds each statement, so that a dead connection is
	// noticed.
	statementTimeout = 5 * time.Second
	// longestStatement is how long that may become where statements take long.
	longestStatement = time.Minute
	// reconnectDelay is the pause after the connection was lost.
	reconnectDelay = 250 * time.Millisecond
)

// Options is what an Assigner needs; all but Strategy, Poll and Hub are required.
type Options struct {
	Pool    *pgxpool.Pool
	Metrics *metrics.Metrics
	Logger  *slog.Logger
	// Schema prefixes the channels' names.
	Schema string
	// Strategy is LeastLoaded (the default), RoundRobin or Spread.
	Strategy string
	// Poll is how often to look for what notifications would tell, where they are
	// not heard: behind a pooler in transaction mode. 0: they are.
	Poll time.Duration
	// Hub hears notifications. Default: one of the Assigner's own.
	Hub *hearing.Hub
}

// Assigner offers available jobs to nodes while its node leads the scheduler.
type Assigner struct {
	options      Options
	logger       *slog.Logger
	offerTimeout time.Duration
}

// New returns an Assigner.
func New(options Options) (*Assigner, error) {
	switch options.Strategy {
	case "":
		options.Strategy = LeastLoaded
	case LeastLoaded, RoundRobin, Spread:
	default:
		return nil, fmt.Errorf("assignment strategy %q: want %q, %q or %q", options.Strategy, LeastLoaded, RoundRobin, Spread)
	}
	if options.Hub == nil {
		options.Hub = hearing.New(options.Pool, options.Logger)
	}
	return &Assigner{options: options, logger: options.Logger.With("part", "assign"), offerTimeout: offerTimeout}, nil
}

// Lead assigns jobs until ctx ends, and then returns nil, or until the database
// says that the term is over: leaderstore.ErrDeposed. A failure is logged once,
// and the work begun anew.
func (a *Assigner) Lead(ctx context.Context, fence leaderstore.Fence) error {
	logger := a.logger.With("term", fence.Term)
	ctx, end := progress.Begin(ctx, "assign")
	defer end()
	defer a.options.Metrics.AssignmentWaiting.Set(0)
	defer a.options.Metrics.AssignmentUnworked.Reset()
	memory := newBoard(fence.Term, a.options.Strategy)
	for failing := false; ; {
		worked, err := a.hearAndLead(ctx, fence, memory, logger)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case worked || !failing:
			logger.WarnContext(ctx, "assignment was interrupted, beginning anew", "error", err)
		}
		failing = true
		if !progress.Sleep(ctx, reconnectDelay) {
			return nil
		}
	}
}

// hearAndLead works until a statement or the hearing fails, and tells whether it
// got as far as one whole turn.
func (a *Assigner) hearAndLead(ctx context.Context, fence leaderstore.Fence, memory *board, logger *slog.Logger) (worked bool, err error) {
	memory.forget()
	l := &loop{
		pool: a.options.Pool, hub: a.options.Hub, poll: a.options.Poll, fence: fence, schema: a.options.Schema,
		metrics: a.options.Metrics, logger: logger, offerTimeout: a.offerTimeout,
		board: memory, limits: newLimits(), lanes: map[string]*lane{}, flights: map[int64]flight{},
	}
	err = l.run(ctx)
	return l.turns > 0, err
}
