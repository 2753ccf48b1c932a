package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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
	// reconnectDelay is the pause after the connection was lost.
	reconnectDelay = 250 * time.Millisecond
)

// Options is what an Assigner needs; all but Strategy are required.
type Options struct {
	// Pool lends the connection that the Assigner takes for itself.
	Pool    *pgxpool.Pool
	Metrics *metrics.Metrics
	Logger  *slog.Logger
	// Schema prefixes the channels' names.
	Schema string
	// Strategy is LeastLoaded (the default) or RoundRobin.
	Strategy string
}

// Assigner offers available jobs to nodes while its node leads the scheduler.
type Assigner struct {
	options Options
	logger  *slog.Logger
}

// New returns an Assigner.
func New(options Options) (*Assigner, error) {
	switch options.Strategy {
	case "":
		options.Strategy = LeastLoaded
	case LeastLoaded, RoundRobin:
	default:
		return nil, fmt.Errorf("assignment strategy %q: want %q or %q", options.Strategy, LeastLoaded, RoundRobin)
	}
	return &Assigner{options: options, logger: options.Logger.With("part", "assign")}, nil
}

// Lead assigns jobs until ctx ends, and then returns nil, or until the database
// says that the term is over: leaderstore.ErrDeposed. A lost connection is
// logged once and made anew.
func (a *Assigner) Lead(ctx context.Context, fence leaderstore.Fence) error {
	logger := a.logger.With("term", fence.Term)
	ctx, end := progress.Begin(ctx, "assign")
	defer end()
	defer a.options.Metrics.AssignmentWaiting.Set(0)
	memory := newBoard(fence.Term, a.options.Strategy)
	for failing := false; ; {
		worked, err := a.connectAndLead(ctx, fence, memory)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case worked || !failing:
			logger.WarnContext(ctx, "assignment lost its connection, reconnecting", "error", err)
		}
		failing = true
		if !progress.Sleep(ctx, reconnectDelay) {
			return nil
		}
	}
}

// connectAndLead works on a connection of its own until that fails, and tells
// whether it got as far as one whole turn.
func (a *Assigner) connectAndLead(ctx context.Context, fence leaderstore.Fence, memory *board) (worked bool, err error) {
	lent, err := a.options.Pool.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	conn := lent.Hijack()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	memory.forget()
	l := &loop{
		conn: conn, fence: fence, schema: a.options.Schema, metrics: a.options.Metrics,
		board: memory, lanes: map[string]*lane{}, flights: map[int64]flight{},
	}
	err = l.run(ctx)
	return l.turns > 0, err
}
