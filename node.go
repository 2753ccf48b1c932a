package forge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/leaderfile"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/migrations"
	"github.com/forge-scheduler/forge/roles"
)

// leaveTimeout limits the last writes of a stopping node to a database that may be gone.
const leaveTimeout = 2 * time.Second

// Run runs the node until ctx ends, which is not an error. It then hands its roles over,
// drains its jobs and leaves the cluster. A Node runs once; Run closes it before it
// returns.
func (n *Node) Run(ctx context.Context) error {
	defer n.Close()
	var err error
	if n.heartbeatPool, err = postgres.Single(ctx, n.pool); err != nil {
		return err
	}
	defer n.heartbeatPool.Close()
	listener, err := n.openListener()
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // the server has usually closed it
	if n.self.APIURL == "" {
		n.self.APIURL = n.urlOf(listener.Addr())
	}
	if err := n.join(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return n.serve(ctx, listener)
}

// join migrates the database, joins the cluster and applies the file. Its error names
// missing privileges.
func (n *Node) join(ctx context.Context) error {
	return doctor.ExplainGrants(ctx, n.pool, n.cfg.Database.Schema, n.enterCluster(ctx))
}

func (n *Node) enterCluster(ctx context.Context) error {
	if err := postgres.Ping(ctx, n.pool); err != nil {
		return err
	}
	if err := postgres.EnsureSchema(ctx, n.pool, n.cfg.Database.Schema); err != nil {
		return err
	}
	if err := migrations.New(n.pool, n.logger).Up(ctx); err != nil {
		return err
	}
	member := n.member()
	if err := member.Join(ctx); err != nil {
		return err
	}
	n.admission.joined.Store(true)
	if err := member.RunDuring(ctx, n.applyOwn); err != nil { // may wait for another node
		return err
	}
	return n.keepQueues(ctx)
}

func (n *Node) reportApply(ctx context.Context, outcome cronstore.Outcome, own string) {
	switch outcome.State {
	case cronstore.StateApplied:
		n.logger.InfoContext(ctx, "configuration applied", "hash", outcome.InForce,
			"added", len(outcome.Added), "changed", len(outcome.Changed), "removed", len(outcome.Removed))
		if len(outcome.Removed) > 0 {
			n.logger.WarnContext(ctx, "crons were removed; they keep their history and continue if a file adds them again",
				"crons", cronstore.NameSome(outcome.Removed), "count", len(outcome.Removed))
		}
	case cronstore.StateSuperseded:
		n.logger.WarnContext(ctx, "this file's crons were superseded by a newer configuration, which stays in force; run forge apply to go back",
			"own_hash", own, "in_force", outcome.InForce)
	case cronstore.StateInForce:
		if len(outcome.Added) > 0 {
			n.logger.WarnContext(ctx, "crons whose rows were deleted start again",
				"crons", cronstore.NameSome(outcome.Added), "count", len(outcome.Added))
		}
	}
}

func (n *Node) member() *nodestore.Member {
	return nodestore.NewMember(nodestore.MemberOptions{
		Pool: n.pool, HeartbeatPool: n.heartbeatPool, Node: n.self, Policy: n.policy(), Metrics: n.metrics, Logger: n.logger,
		Running: n.runner.Running,
		OnState: func(state string) { n.elections.SetDraining(state != nodestore.Active) },
	})
}

// serve runs all services, those on which others depend in the outer tiers. The listener
// answers until the end, the heartbeat runs until the jobs are drained, and leadership is
// handed over first.
func (n *Node) serve(ctx context.Context, listener net.Listener) error {
	member := n.member()
	reporter := aggregator.NewReporter(n.pool, aggregator.ReporterOptions{
		NodeID: n.cfg.Node.ID, Incarnation: n.incarnation,
		Interval: n.cfg.Metrics.ScrapeInterval.Std(), Metrics: n.metrics, Logger: n.logger,
	})
	n.initMetrics()
	n.initConfigured(n.cfg)
	n.writes.check(ctx)

	err := runServices(ctx,
		[]service{{"listener", func(ctx context.Context) error { return n.listen(ctx, listener) }}},
		[]service{{"membership", n.runHeartbeat(member)}, {"metrics", reporter.Run}, {"leader file", n.keepLeaderFile}, {"callbacks", n.callbackLoop.Run}, {"readiness", n.writes.run}, {"starvation", watchdog.StarvationMeter{Add: n.metrics.NodeStarvedSeconds.Add, Logger: n.logger}.Run}},
		[]service{{"jobs", n.work}},
		[]service{{"drain", n.announceDrain(member)}, {"ready", n.announceReady}, {"election", n.elections.Run}, {"deputy", n.runDeputy}, {"health", n.healthWatcher.run}, {"configuration", n.keepConfiguration}, {"rows", n.keepRows}},
	)
	n.logger.InfoContext(ctx, "node has stopped", "node", n.cfg.Node.ID)
	return err
}

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
	return leaderfile.New(leaderfile.Options{
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
	n.metrics.NodeSlots.WithLabelValues(cfg.Node.ID).Set(float64(cfg.Node.Slots))
	n.metrics.ConfigReloadedAt.SetToCurrentTime()
}

func (n *Node) electionConfig() config.LeaderElection { return n.cfg.Cluster.LeaderElection }

// ready returns for /readyz what keeps this node from working.
func (n *Node) ready(ctx context.Context) error {
	if err := n.pool.Ping(ctx); err != nil {
		return errors.Join(n.readiness.err(), cluster.UnreadyError{Public: "database: it cannot be reached", Err: fmt.Errorf("database: %w", err)})
	}
	return errors.Join(n.readiness.err(), n.writes.err())
}
