package forge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/dbpool"
	"github.com/forge-scheduler/forge/internal/grants"
	"github.com/forge-scheduler/forge/internal/leaderfile"
	"github.com/forge-scheduler/forge/internal/membership"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/starvation"
	"github.com/forge-scheduler/forge/migrations"
	"github.com/forge-scheduler/forge/roles"
)

// leaveTimeout bounds the goodbye to a database that may be gone.
const leaveTimeout = 2 * time.Second

// Run works and campaigns until ctx ends, which is no error. It then hands its
// roles over, drains its jobs and leaves the cluster. A Node runs once, and is closed
// when Run returns.
func (n *Node) Run(ctx context.Context) error {
	defer n.Close()
	var err error
	if n.beats, err = dbpool.Single(ctx, n.pool); err != nil {
		return err
	}
	defer n.beats.Close()
	listener, err := n.openListener()
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // the server has closed it by then
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

// join migrates the database, enters the cluster and applies the file. Its error names
// the privileges that are missing.
func (n *Node) join(ctx context.Context) error {
	return grants.Explain(ctx, n.pool, n.cfg.Database.Schema, n.enter(ctx))
}

func (n *Node) enter(ctx context.Context) error {
	if err := dbpool.Ping(ctx, n.pool); err != nil {
		return err
	}
	if err := dbpool.EnsureSchema(ctx, n.pool, n.cfg.Database.Schema); err != nil {
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
	if err := member.Attend(ctx, n.applyOwn); err != nil { // it may wait for another's
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
			n.logger.WarnContext(ctx, "crons were removed; they keep their history, and go on where they were when a file brings them back",
				"crons", cronstore.NameSome(outcome.Removed), "count", len(outcome.Removed))
		}
	case cronstore.StateSuperseded:
		n.logger.WarnContext(ctx, "this file's crons were superseded by a newer configuration and stay as that one has them; run forge apply to go back",
			"own_hash", own, "in_force", outcome.InForce)
	case cronstore.StateInForce:
		if len(outcome.Added) > 0 {
			n.logger.WarnContext(ctx, "crons whose rows had been deleted begin anew",
				"crons", cronstore.NameSome(outcome.Added), "count", len(outcome.Added))
		}
	}
}

func (n *Node) member() *membership.Member {
	return membership.New(membership.Options{
		Pool: n.pool, Beats: n.beats, Node: n.self, Policy: n.policy(), Metrics: n.metrics, Logger: n.logger,
		Running: n.runner.Running,
		OnState: func(state string) { n.campaign.Abstain(state != nodestore.Active) },
	})
}

// serve runs every part, what others lean on outermost: the listener answers
// until the end, the heart beats until the jobs are drained, and leadership is
// handed over first of all.
func (n *Node) serve(ctx context.Context, listener net.Listener) error {
	member := n.member()
	reporter := aggregator.NewReporter(n.pool, aggregator.ReporterOptions{
		NodeID: n.cfg.Node.ID, Incarnation: n.incarnation,
		Interval: n.cfg.Metrics.ScrapeInterval.Std(), Metrics: n.metrics, Logger: n.logger,
	})
	n.initMetrics()
	n.initConfigured(n.cfg)
	n.writes.check(ctx)

	err := nest(ctx,
		[]service{{"listener", func(ctx context.Context) error { return n.listen(ctx, listener) }}},
		[]service{{"membership", n.beat(member)}, {"metrics", reporter.Run}, {"leader file", n.keepLeaderFile}, {"callbacks", n.herald.Run}, {"readiness", n.writes.run}, {"starvation", starvation.Meter{Add: n.metrics.NodeStarvedSeconds.Add, Logger: n.logger}.Run}},
		[]service{{"jobs", n.work}},
		[]service{{"drain", n.announceDrain(member)}, {"ready", n.announceReady}, {"election", n.campaign.Run}, {"deputy", n.deputize}, {"health", n.vigil.run}, {"configuration", n.keepConfiguration}, {"rows", n.keepRows}},
	)
	n.logger.InfoContext(ctx, "node has stopped", "node", n.cfg.Node.ID)
	return err
}

// announceReady says that the node is ready once its job client is.
func (n *Node) announceReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.runner.Ready():
	}
	n.gate.open()
	n.reportReady(n.writes.err() == nil)
	n.logger.InfoContext(ctx, "node is up", "node", n.cfg.Node.ID, "incarnation", n.incarnation,
		"url", n.self.APIURL, "pid", n.self.PID)
	n.opts.ready()
	<-ctx.Done()
	return nil
}

// beat runs the heartbeat and, when it ends in peace, leaves the cluster.
func (n *Node) beat(member *membership.Member) func(context.Context) error {
	return func(ctx context.Context) error {
		err := member.Run(ctx)
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if err != nil {
			n.runner.Abandon(leaving)
			return err
		}
		if err := member.Leave(leaving); err != nil && !errors.Is(err, ErrFenced) {
			n.logger.WarnContext(ctx, "could not leave the cluster in order; it will find out", "error", err)
		}
		return nil
	}
}

// announceDrain waits for the end and says first of all that this node takes no
// more jobs.
func (n *Node) announceDrain(member *membership.Member) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		n.gate.close()
		n.reportReady(false)
		draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if err := member.Drain(draining); err != nil && !errors.Is(err, ErrFenced) {
			n.logger.WarnContext(ctx, "could not announce the drain", "error", err)
		}
		return nil
	}
}

// work runs jobs; a node without the worker role has none.
func (n *Node) work(ctx context.Context) error {
	if !n.cfg.Node.HasRole(workerRole) {
		<-ctx.Done()
		return nil
	}
	return n.runner.Run(ctx)
}

// keepLeaderFile writes who leads, if a file is wanted.
func (n *Node) keepLeaderFile(ctx context.Context) error {
	if n.election().LeaderFile == "" {
		<-ctx.Done()
		return nil
	}
	changed, unsubscribe := n.changes.Subscribe()
	defer unsubscribe()
	return leaderfile.New(leaderfile.Options{
		Path: n.election().LeaderFile, Role: string(roles.Scheduler),
		Leaders:  n.readLeaders,
		Interval: n.election().CheckInterval.Std(), Patience: n.election().LeaseDuration.Std(),
		Changes: changed, Logger: n.logger,
	}).Run(ctx)
}

func (n *Node) deputize(ctx context.Context) error {
	switch {
	case n.deputy != nil:
		return n.deputy.Run(ctx)
	case n.byLease():
		return n.keepVigil(ctx)
	}
	<-ctx.Done()
	return nil
}

func (n *Node) leadershipChanged() {
	n.changes.announce()
	n.herald.look()
	if n.deputy != nil {
		n.deputy.Look()
	}
}

func (n *Node) initMetrics() {
	stands := slices.DeleteFunc(n.takesPartIn(), func(name string) bool { return name == workerRole })
	n.metrics.InitRoles(n.cfg.Node.ID, stands)
}

// initConfigured starts the series of a file's crons and jobs.
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

func (n *Node) election() config.LeaderElection { return n.cfg.Cluster.LeaderElection }

// ready answers /readyz: whatever keeps this node from working.
func (n *Node) ready(ctx context.Context) error {
	if err := n.pool.Ping(ctx); err != nil {
		return errors.Join(n.gate.err(), dashboard.UnreadyError{Public: "database: it cannot be reached", Err: fmt.Errorf("database: %w", err)})
	}
	return errors.Join(n.gate.err(), n.writes.err())
}
