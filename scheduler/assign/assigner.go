package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/tracing"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// offerTimeout is how long an offered job may stay unclaimed before it is offered
	// again.
	offerTimeout = 500 * time.Millisecond
	// creditRequestInterval is the time between two credit requests to a member that does not
	// answer.
	creditRequestInterval = time.Second
	// sweepInterval is the maximum time between two sweeps, for events without a
	// notification.
	sweepInterval = 2 * time.Second
	// nodesInterval is the maximum time between two reads of forge_nodes.
	nodesInterval = 10 * time.Second
	// lookahead is how long before its scheduled time an available job is read. It
	// exceeds River's five seconds.
	lookahead = 10 * time.Second
	// stepInterval is the minimum time between two steps. Under load, one step handles
	// several notifications.
	stepInterval = 2 * time.Millisecond
	// fruitlessInterval replaces stepInterval while the loop reads a backlog that no
	// member can take.
	fruitlessInterval = 20 * time.Millisecond
	// statementTimeout is the time limit of each statement, so that a dead connection is
	// noticed.
	statementTimeout = 5 * time.Second
	// maxStatementTimeout is the maximum time limit where statements are slow.
	maxStatementTimeout = time.Minute
	// earlierClaims is longer than nodes of an earlier version keep an offer before they claim it.
	earlierClaims = 20 * time.Second
	// reconnectDelay is the pause after a lost connection.
	reconnectDelay = 250 * time.Millisecond
)

// Options are the dependencies of an Assigner. All are required except Strategy and Tracer.
type Options struct {
	Pool    *pgxpool.Pool
	Metrics *metrics.Metrics
	Logger  *slog.Logger
	// Schema is the prefix of the channel names.
	Schema string
	// Strategy is LeastLoaded (the default), RoundRobin or Spread.
	Strategy string
	// Notifier sends and receives notifications.
	Notifier *postgres.Notifier
	// Tracer creates a span for each round of offers; nil means none.
	Tracer *tracing.Tracer
}

// Assigner offers available jobs to nodes while this node leads the scheduler.
type Assigner struct {
	options      Options
	logger       *slog.Logger
	offerTimeout time.Duration
	cheapBelow   time.Duration
	recoverAfter time.Duration
	running      atomic.Pointer[loop]
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
	return &Assigner{options: options, logger: options.Logger.With("part", "assign"), offerTimeout: offerTimeout, cheapBelow: cheapBelow, recoverAfter: recoverAfter}, nil
}

// Lead assigns jobs until ctx ends or the term is over. It returns nil if ctx ended, and
// leaderstore.ErrDeposed if the database reports that the term is over. After any other
// failure, Lead starts again. It logs only the first of consecutive failures.
func (a *Assigner) Lead(ctx context.Context, fence leaderstore.Fence) error {
	logger := a.logger.With("term", fence.Term)
	ctx, end := watchdog.Begin(ctx, "assign")
	defer end()
	defer a.options.Metrics.AssignmentWaiting.Set(0)
	defer a.options.Metrics.AssignmentUnworked.Reset()
	defer a.options.Metrics.LimitWait.Reset()
	nodes := newNodeTable(fence.Term, a.options.Strategy)
	for failing := false; ; {
		worked, err := a.listenAndLead(ctx, fence, nodes, logger)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case worked || !failing:
			logger.WarnContext(ctx, "assignment was interrupted; retrying", "error", err)
		}
		failing = true
		if !watchdog.Sleep(ctx, reconnectDelay) {
			return nil
		}
	}
}

// listenAndLead assigns jobs until a statement or the notifications fail. worked reports
// whether it completed at least one step.
func (a *Assigner) listenAndLead(ctx context.Context, fence leaderstore.Fence, nodes *nodeTable, logger *slog.Logger) (worked bool, err error) {
	nodes.resetCredit()
	l := a.newLoop(fence, nodes, logger)
	a.running.Store(l)
	defer a.running.Store(nil)
	err = l.run(ctx)
	return l.steps > 0, err
}

// newLoop returns a loop that knows nothing of earlier ones but the nodes: after an interruption,
// or in a new term, it reads each queue from the beginning, and counts the places of limits.
func (a *Assigner) newLoop(fence leaderstore.Fence, nodes *nodeTable, logger *slog.Logger) *loop {
	l := &loop{
		turn: make(chan struct{}, 1),
		pool: a.options.Pool, notifier: a.options.Notifier, delay: a.options.Notifier.Delay(), fence: fence, schema: a.options.Schema,
		metrics: a.options.Metrics, tracer: a.options.Tracer, logger: logger, offerTimeout: a.offerTimeout, cheapBelow: a.cheapBelow,
		nodes: nodes, limits: newLimits(), queueScans: map[string]*queueScan{}, pendingOffers: map[int64]pendingOffer{},
	}
	l.limits.counting = nodes.counting(time.Now())
	l.limits.waits.starvation.recoverAfter = a.recoverAfter
	return l
}
