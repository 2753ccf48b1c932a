package forge

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// leaderlessFor is after how long a vacant role may degrade the cluster's health. It is
	// slightly longer than the limit of forge_judge_health, which decides.
	leaderlessFor = 6 * time.Second
	// healthCheckInterval is how often a node without deputies checks the cluster.
	healthCheckInterval = 15 * time.Second
	// healthCheckTimeout limits such a check. It has several statements, each of which may be
	// slow.
	healthCheckTimeout = 10 * time.Second
)

// healthWatcher re-evaluates cluster health when leaders or members change. The
// transactions that change the cluster evaluate most of it. The periodic checks of the
// nodes find the rest, such as a role that remains vacant.
type healthWatcher struct {
	evaluate func(ctx context.Context) (evaluated bool, err error)
	recheck  func() // checks the cluster again
	pool     *pgxpool.Pool
	logger   *slog.Logger
	// pending receives when the health may change by the passage of time alone.
	pending chan struct{}

	mu        sync.Mutex
	lastState string
}

func (n *Node) newHealthWatcher() *healthWatcher {
	return &healthWatcher{
		evaluate: func(ctx context.Context) (bool, error) { return eventstore.New(n.pool).EvaluateHealth(ctx) },
		recheck:  n.recheckCluster,
		pool:     n.pool, logger: n.logger,
		pending: make(chan struct{}, 1),
	}
}

// run repeats pending checks after leaderlessFor, until ctx ends.
func (w *healthWatcher) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.pending:
		}
		if !watchdog.Sleep(ctx, leaderlessFor) {
			return nil
		}
		w.recheck()
	}
}

// update re-evaluates the health if the cluster has changed since the last update.
func (w *healthWatcher) update(ctx context.Context, leaders []leaderstore.Leader, nodes []nodestore.Node) error {
	found, pending := clusterState(leaders, nodes)
	if pending {
		select {
		case w.pending <- struct{}{}:
		default: // a check is already pending
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if found == w.lastState {
		return nil
	}
	evaluated, err := w.evaluate(ctx)
	if err == nil && evaluated {
		w.lastState = found
	}
	return err
}

// clusterState returns the facts on which the cluster's health depends, and whether time
// alone may change the health.
func clusterState(leaders []leaderstore.Leader, nodes []nodestore.Node) (found string, pending bool) {
	var lines []string
	var oldest time.Time
	for _, node := range nodes {
		lines = append(lines, "node "+node.NodeID+" "+node.Incarnation+" "+node.State)
		if node.Present() && (oldest.IsZero() || node.StartedAt.Before(oldest)) {
			oldest = node.StartedAt
		}
	}
	for _, leader := range leaders {
		since := leader.LeaseUntil
		if oldest.After(since) {
			since = oldest
		}
		long := !leader.Leads() && leader.Now.Sub(since) >= leaderlessFor
		pending = pending || !leader.Leads() && !long
		lines = append(lines, fmt.Sprintf("role %s %v %v", leader.Role, leader.Leads(), long))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), pending
}

// Causes returns why the cluster is degraded. It evaluates the health first if the causes
// are not in the events yet: the process that changed the cluster may have died before it
// evaluated the health.
func (w *healthWatcher) Causes(ctx context.Context) ([]string, error) {
	causes, recorded, err := eventstore.New(w.pool).Causes(ctx)
	if err == nil && !recorded {
		if _, err := w.evaluate(ctx); err != nil {
			w.logger.DebugContext(ctx, "could not evaluate the cluster's health, will retry at the next read", "error", err)
		}
	}
	return causes, err
}

// Hazards returns conditions that stop work although nodes and roles are up.
func (w *healthWatcher) Hazards(ctx context.Context) ([]hazards.Hazard, error) {
	facts, err := hazards.New(w.pool).Read(ctx)
	return facts.Find(), err
}

// recheckCluster triggers a check of the cluster.
func (n *Node) recheckCluster() {
	if n.deputy != nil {
		n.deputy.Refresh()
		return
	}
	n.broadcaster.broadcast()
}

// watchHealth checks the cluster periodically on nodes without deputies. Deputies check it
// themselves.
func (n *Node) watchHealth(ctx context.Context) error {
	changed, unsubscribe := n.broadcaster.Subscribe()
	defer unsubscribe()
	ticker := time.NewTicker(healthCheckInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := n.checkCluster(ctx); err != nil && ctx.Err() == nil {
			n.logger.DebugContext(ctx, "could not check the cluster", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-ticker.C:
		}
	}
	return nil
}

func (n *Node) checkCluster(ctx context.Context) error {
	checking, cancel := context.WithTimeout(ctx, healthCheckTimeout)
	defer cancel()
	_, err := n.readCluster(checking)
	return err
}
