package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/urgent"
)

const (
	// joinRetry is how often Join looks again while a twin holds the node id.
	joinRetry = 200 * time.Millisecond
	// jitter takes up to a tenth off each interval, so that nodes that started
	// together do not stay in step. It never adds: a late beat looks like death.
	jitter = 0.1
	// retryShare is the part of an interval after which a beat that failed is
	// tried again: when the database is back, every node should be heard before
	// anyone judges it.
	retryShare = 0.25
	// longestBeat is how many dead thresholds a beat may take at most, where all take
	// long: to begin it anew on another connection takes longer.
	longestBeat = 4
)

// Options is what a Member needs. Pool, Node.NodeID, Node.Incarnation and
// Logger are required.
type Options struct {
	Pool *pgxpool.Pool
	// Beats is what heartbeats go through; nil means Pool. A pool of their own has
	// them wait for no other work.
	Beats *pgxpool.Pool
	// Node is what the process brings to the cluster. State, times and Running
	// are ignored.
	Node nodestore.Node
	// Policy holds the heartbeat interval and the dead threshold.
	Policy  nodestore.Policy
	Metrics *metrics.Metrics
	Logger  *slog.Logger
	// Running counts the jobs that run now; nil means none.
	Running func() int
	// OnState, if set, is called by Run with the state of the node's row at the first
	// heartbeat, and when a later one finds it changed: an operator drains nodes by their row. It must
	// not block.
	OnState func(state string)
}

// registry is where a Member is listed.
type registry interface {
	register(ctx context.Context) error
	heartbeat(ctx context.Context, running int) (state string, err error)
	setState(ctx context.Context, state string) error
}

// Member is this process as a node of the cluster.
type Member struct {
	options  Options
	registry registry
	logger   *slog.Logger
	// beatTimeout is how long the next beat may take.
	beatTimeout time.Duration
}

// New returns a Member that has not joined yet.
func New(options Options) *Member {
	options.Policy = options.Policy.WithDefaults()
	if options.Running == nil {
		options.Running = func() int { return 0 }
	}
	if options.Beats == nil {
		options.Beats = options.Pool
	}
	return &Member{
		options:     options,
		registry:    table{options.Pool, options.Beats, options.Node, options.Policy},
		logger:      options.Logger.With("node", options.Node.NodeID),
		beatTimeout: options.Policy.DeadThreshold / 2,
	}
}

// Join registers the node. While another process holds the node id Join waits
// for up to one dead threshold, for that process may have crashed a moment ago;
// then it fails with an error that says who it is and what to do.
func (m *Member) Join(ctx context.Context) error {
	deadline := time.Now().Add(m.options.Policy.DeadThreshold)
	for waited := false; ; waited = true {
		err := m.registry.register(ctx)
		twin, isTwin := errors.AsType[*nodestore.TwinError](err)
		switch {
		case err == nil:
			m.countSlots()
			return nil
		case !isTwin:
			return fmt.Errorf("join the cluster: %w", err)
		case !time.Now().Before(deadline):
			return fmt.Errorf("join the cluster: %w; stop that process, or give this node an id of its own (node.id)", twin)
		case !waited:
			m.logger.WarnContext(ctx, "node id is held by another process, waiting for it to go",
				"held_by_pid", twin.PID, "held_by_host", twin.Hostname, "at_most", m.options.Policy.DeadThreshold)
		}
		if !progress.Sleep(ctx, joinRetry) {
			return fmt.Errorf("join the cluster: %w", ctx.Err())
		}
	}
}

// Run heartbeats until ctx ends, on a thread of its own, and then returns nil. nodestore.ErrFenced
// means that the cluster has given this process up: its jobs are being given to
// others, so it must stop claiming, and exit or join with a new incarnation. An
// unreachable database is logged once and waited for.
func (m *Member) Run(ctx context.Context) error {
	return urgent.Run(func() error { return m.run(ctx) })
}

func (m *Member) run(ctx context.Context) error {
	state, failing := "", false // the first state is news: an earlier Run may have told another
	for {
		found, err := m.beat(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for; that a beat failed with it is no news
		}
		m.count(err)
		switch {
		case errors.Is(err, nodestore.ErrFenced):
			return err
		case err != nil && !failing:
			m.logger.WarnContext(ctx, "heartbeat failed, retrying", "error", err)
		case err == nil && failing:
			m.logger.InfoContext(ctx, "heartbeat is back")
		}
		failing = err != nil
		if err == nil && found != state {
			state = found
			m.noticeState(state)
		}
		if !progress.Sleep(ctx, m.pause(failing)) {
			return nil
		}
	}
}

// Attend is Run for as long as work takes: a node that is silent meanwhile is given
// up, however busy it is. work is not cut short when that has happened.
func (m *Member) Attend(ctx context.Context, work func(context.Context) error) error {
	beating, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(beating) }()
	err := work(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// Drain announces that the node takes no more jobs.
func (m *Member) Drain(ctx context.Context) error {
	return m.registry.setState(ctx, nodestore.Draining)
}

// Leave says goodbye: what the node still runs may be given to others at once.
// Call it when its last job has ended.
func (m *Member) Leave(ctx context.Context) error { return m.registry.setState(ctx, nodestore.Left) }

// beat gives up in time for another try before the node would count as dead, and
// later after each try that took too long: a database that is slow would never answer.
func (m *Member) beat(ctx context.Context) (string, error) {
	timely, cancel := context.WithTimeout(ctx, m.beatTimeout)
	defer cancel()
	state, err := m.registry.heartbeat(timely, m.options.Running())
	switch threshold := m.options.Policy.DeadThreshold; {
	case err == nil:
		m.beatTimeout = threshold / 2
	case timely.Err() != nil && ctx.Err() == nil:
		m.beatTimeout = min(2*m.beatTimeout, longestBeat*threshold)
	}
	return state, err
}

func (m *Member) pause(failing bool) time.Duration {
	interval := float64(m.options.Policy.HeartbeatInterval)
	if failing {
		interval *= retryShare
	}
	return time.Duration(interval * (1 - jitter*rand.Float64()))
}

func (m *Member) noticeState(state string) {
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

// table is the registry in forge_nodes.
type table struct {
	pool   *pgxpool.Pool
	beats  *pgxpool.Pool
	node   nodestore.Node
	policy nodestore.Policy
}

func (t table) register(ctx context.Context) error {
	return nodestore.Register(ctx, t.pool, t.node, t.policy)
}

func (t table) heartbeat(ctx context.Context, running int) (string, error) {
	return nodestore.Heartbeat(ctx, t.beats, t.node.NodeID, t.node.Incarnation, running)
}

func (t table) setState(ctx context.Context, state string) error {
	return nodestore.SetState(ctx, t.pool, t.node.NodeID, t.node.Incarnation, state)
}
