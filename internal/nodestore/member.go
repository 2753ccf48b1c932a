package nodestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// joinRetry is the retry interval of Join while another process holds the node
	// id.
	joinRetry = 200 * time.Millisecond
	// jitter shortens each interval by up to a tenth, so that nodes that started
	// together do not stay synchronized. It never lengthens one: a late heartbeat
	// looks like a dead node.
	jitter = 0.1
	// retryShare is the share of an interval after which a failed heartbeat is
	// retried. When the database is back, every node should have sent a heartbeat
	// before other nodes evaluate it.
	retryShare = 0.25
	// maxBeatThresholds bounds the time of a heartbeat on a slow database, in dead
	// thresholds: a retry on another connection takes longer.
	maxBeatThresholds = 4
)

// errNoConnection marks heartbeats that got no connection.
var errNoConnection = errors.New("no connection")

// MemberOptions holds what a Member needs. Pool, Node.NodeID, Node.Incarnation and
// Logger are required.
type MemberOptions struct {
	Pool *pgxpool.Pool
	// HeartbeatPool is the pool for heartbeats; nil means Pool. With a separate
	// pool, heartbeats do not wait for other work.
	HeartbeatPool *pgxpool.Pool
	// Node is the row that the process registers. State, times and Running are
	// ignored.
	Node Node
	// Policy holds the heartbeat interval and the dead threshold.
	Policy  Policy
	Metrics *metrics.Metrics
	Logger  *slog.Logger
	// Running returns the number of running jobs; nil means none.
	Running func() int
	// OnState, if set, is called by Run with the state of the node's row at the
	// first heartbeat, and at each later heartbeat that finds it changed: an
	// operator drains a node through its row. It must not block.
	OnState func(state string)
	// OnBeat, if set, is called by Run with the result of each heartbeat. It must not block.
	OnBeat func(err error)
}

// registry stores the rows of nodes.
type registry interface {
	register(ctx context.Context) error
	heartbeat(ctx context.Context, running int) (state string, err error)
	setState(ctx context.Context, state string) error
}

// Member is this process as a node of the cluster.
type Member struct {
	options  MemberOptions
	registry registry
	logger   *slog.Logger
	// beatTimeout is the timeout of the next heartbeat.
	beatTimeout time.Duration
}

// NewMember returns a Member that has not joined.
func NewMember(options MemberOptions) *Member {
	options.Policy = options.Policy.WithDefaults()
	if options.Running == nil {
		options.Running = func() int { return 0 }
	}
	if options.HeartbeatPool == nil {
		options.HeartbeatPool = options.Pool
	}
	return &Member{
		options:     options,
		registry:    nodeTable{New(options.Pool), options.HeartbeatPool, options.Node, options.Policy},
		logger:      options.Logger.With("node", options.Node.NodeID),
		beatTimeout: options.Policy.beatTimeout(),
	}
}

// Join registers the node. While another process holds the node id, Join waits for
// at most one dead threshold, because that process may just have crashed. Then it
// fails with an error that identifies the process and says what to do.
func (m *Member) Join(ctx context.Context) error {
	deadline := time.Now().Add(m.options.Policy.DeadThreshold)
	for waited := false; ; waited = true {
		err := m.registry.register(ctx)
		duplicate, isTwin := errors.AsType[*DuplicateIDError](err)
		switch {
		case err == nil:
			m.countSlots()
			return nil
		case !isTwin:
			return fmt.Errorf("join the cluster: %w", err)
		case !time.Now().Before(deadline):
			return fmt.Errorf("join the cluster: %w; stop that process, or give this node an id of its own (node.id)", duplicate)
		case !waited:
			m.logger.WarnContext(ctx, "node id is held by another process, waiting for it to end",
				"held_by_pid", duplicate.PID, "held_by_host", duplicate.Hostname, "at_most", m.options.Policy.DeadThreshold)
		}
		if !watchdog.Sleep(ctx, joinRetry) {
			return fmt.Errorf("join the cluster: %w", ctx.Err())
		}
	}
}

// Run sends heartbeats on its own thread until ctx ends, and then returns nil. It
// returns ErrFenced if the cluster considers this process dead: its jobs are being
// reassigned, so it must stop claiming, and exit or join with a new incarnation. An
// unreachable database is logged once, and Run retries.
func (m *Member) Run(ctx context.Context) error {
	return watchdog.RunHighPriority(func() error { return m.run(ctx) })
}

func (m *Member) run(ctx context.Context) error {
	state, failing := "", false // the first state is always reported: an earlier Run may have reported another state
	for {
		found, err := m.beat(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx has ended; the heartbeat failed because of that
		}
		m.count(err)
		if m.options.OnBeat != nil {
			m.options.OnBeat(err)
		}
		switch {
		case errors.Is(err, ErrFenced):
			return err
		case err != nil && !failing:
			m.logger.WarnContext(ctx, "heartbeat failed, retrying", "error", err)
		case err == nil && failing:
			m.logger.InfoContext(ctx, "heartbeat succeeded again")
		}
		failing = err != nil
		if err == nil && found != state {
			state = found
			m.reportState(state)
		}
		if !watchdog.Sleep(ctx, m.pause(failing)) {
			return nil
		}
	}
}

// RunDuring sends heartbeats, as Run does, while work runs: a node that is silent
// meanwhile is fenced, however busy it is. It does not cancel work if that has
// happened.
func (m *Member) RunDuring(ctx context.Context, work func(context.Context) error) error {
	beating, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(beating) }()
	err := work(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// Drain records that the node takes no more jobs.
func (m *Member) Drain(ctx context.Context) error {
	return m.registry.setState(ctx, Draining)
}

// Leave marks the node as left: its remaining jobs may be reassigned at once. Call
// it when the last job has ended.
func (m *Member) Leave(ctx context.Context) error { return m.registry.setState(ctx, Left) }

// beat sends a heartbeat. Its timeout leaves time for a retry before the node would
// count as dead, and grows after each statement that timed out: otherwise a heartbeat
// would never succeed on a slow database. It does not grow after a heartbeat that got no
// connection: the pool continues to open one, and the retry may get another one sooner.
func (m *Member) beat(ctx context.Context) (string, error) {
	timely, cancel := context.WithTimeout(ctx, m.beatTimeout)
	defer cancel()
	state, err := m.registry.heartbeat(timely, m.options.Running())
	switch policy := m.options.Policy; {
	case err == nil:
		m.beatTimeout = policy.beatTimeout()
	case timely.Err() != nil && ctx.Err() == nil && !errors.Is(err, errNoConnection):
		m.beatTimeout = min(2*m.beatTimeout, maxBeatThresholds*policy.DeadThreshold)
	}
	return state, err
}

// beatTimeout is the timeout of a heartbeat, and of the wait for its connection.
func (p Policy) beatTimeout() time.Duration { return p.DeadThreshold / 2 }

func (m *Member) pause(failing bool) time.Duration {
	interval := float64(m.options.Policy.HeartbeatInterval)
	if failing {
		interval *= retryShare
	}
	return time.Duration(interval * (1 - jitter*rand.Float64()))
}

func (m *Member) reportState(state string) {
	if m.options.OnState != nil {
		m.options.OnState(state)
	}
}

func (m *Member) count(err error) {
	if m.options.Metrics == nil {
		return
	}
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.options.Metrics.NodeHeartbeats.WithLabelValues(m.options.Node.NodeID, result).Inc()
}

func (m *Member) countSlots() {
	if m.options.Metrics != nil {
		m.options.Metrics.NodeSlots.WithLabelValues(m.options.Node.NodeID).Set(float64(m.options.Node.Slots))
	}
}

// nodeTable implements registry with forge_nodes.
type nodeTable struct {
	store      *Store
	heartbeats *pgxpool.Pool
	node       Node
	policy     Policy
}

func (t nodeTable) register(ctx context.Context) error {
	return t.store.Register(ctx, t.node, t.policy)
}

func (t nodeTable) heartbeat(ctx context.Context, running int) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, t.policy.beatTimeout())
	defer cancel()
	conn, err := t.heartbeats.Acquire(waiting)
	if err != nil {
		return "", fmt.Errorf("heartbeat of node %q: %w: %w", t.node.NodeID, errNoConnection, err)
	}
	defer conn.Release()
	return New(conn).Heartbeat(ctx, t.node.NodeID, t.node.Incarnation, running)
}

func (t nodeTable) setState(ctx context.Context, state string) error {
	return t.store.SetState(ctx, t.node.NodeID, t.node.Incarnation, state)
}
