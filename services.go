package forge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/singleton"
	"github.com/forge-scheduler/forge/roles"
)

// leaveTimeout limits the last writes of a stopping node to a database that may be gone.
const leaveTimeout = 2 * time.Second

// announceReady reports that the node is ready once its job client is.
func (n *Node) announceReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.runner.Ready():
	}
	n.readiness.setReady()
	n.reportReady(n.writes.err() == nil)
	n.logger.InfoContext(ctx, "node is up", "node", n.cfg.Node.ID, "incarnation", n.incarnation,
		"url", n.self.APIURL, "pid", n.self.PID)
	n.opts.ready()
	<-ctx.Done()
	return nil
}

// runHeartbeat runs the heartbeat, and leaves the cluster if the heartbeat ended without an
// error.
func (n *Node) runHeartbeat(member *nodestore.Member) func(context.Context) error {
	return func(ctx context.Context) error {
		err := member.Run(ctx)
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if err != nil {
			n.runner.Abandon(leaving)
			return err
		}
		if err := member.Leave(leaving); err != nil && !errors.Is(err, ErrFenced) {
			n.logger.WarnContext(ctx, "could not leave the cluster in order; the other nodes will detect it", "error", err)
		}
		return nil
	}
}

// announceDrain waits for the end of ctx and then reports that this node takes no more
// jobs.
func (n *Node) announceDrain(member *nodestore.Member) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		n.readiness.setStopping()
		n.reportReady(false)
		draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if err := member.Drain(draining); err != nil && !errors.Is(err, ErrFenced) {
			n.logger.WarnContext(ctx, "could not announce the drain", "error", err)
		}
		return nil
	}
}

// work runs jobs if the node has the worker role.
func (n *Node) work(ctx context.Context) error {
	if !n.cfg.Node.HasRole(workerRole) {
		<-ctx.Done()
		return nil
	}
	return n.runner.Run(ctx)
}

// keepLeaderFile writes the leader file if one is configured.
func (n *Node) keepLeaderFile(ctx context.Context) error {
	if n.electionConfig().LeaderFile == "" {
		<-ctx.Done()
		return nil
	}
	changed, unsubscribe := n.broadcaster.Subscribe()
	defer unsubscribe()
	return singleton.NewLeaderFile(singleton.LeaderFileOptions{
		Path: n.electionConfig().LeaderFile, Role: string(roles.Scheduler),
		Leaders:  n.readLeaders,
		Interval: n.electionConfig().CheckInterval.Std(), StaleAfter: n.electionConfig().LeaseDuration.Std(),
		Changes: changed, Logger: n.logger,
	}).Run(ctx)
}

func (n *Node) runDeputy(ctx context.Context) error {
	switch {
	case n.deputy != nil:
		return n.deputy.Run(ctx)
	case n.byLease():
		return n.watchHealth(ctx)
	}
	<-ctx.Done()
	return nil
}

func (n *Node) leadershipChanged() {
	n.broadcaster.broadcast()
	n.callbackLoop.notify()
	if n.deputy != nil {
		n.deputy.Refresh()
	}
}

func (n *Node) initMetrics() {
	candidacies := slices.DeleteFunc(n.participatingRoles(), func(name string) bool { return name == workerRole })
	n.metrics.InitRoles(n.cfg.Node.ID, candidacies)
}

// initConfigured initializes the series of the configured crons and jobs.
func (n *Node) initConfigured(cfg *Config) {
	names := make([]string, len(cfg.Crons))
	for i, cron := range cfg.Crons {
		names[i] = cron.Name
	}
	n.metrics.InitCrons(names)
	n.metrics.InitKinds(n.runner.Kinds())
	n.metrics.InitQueues(slices.Collect(maps.Keys(n.runner.Queues())))
	n.metrics.NodeSlots.WithLabelValues(cfg.Node.ID).Set(float64(cfg.Node.Slots))
	n.metrics.ConfigReloadedAt.SetToCurrentTime()
}

// ready returns for /readyz what keeps this node from working.
func (n *Node) ready(ctx context.Context) error {
	if err := n.pool.Ping(ctx); err != nil {
		return errors.Join(n.readiness.err(), cluster.UnreadyError{
			Public: "database: " + n.outage.describe(err), Err: fmt.Errorf("database: %s: %w", n.outage.describe(err), err),
		})
	}
	return errors.Join(n.readiness.err(), n.writes.err())
}
