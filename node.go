package forge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/engine"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/tracing"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/migrations"
	"github.com/forge-scheduler/forge/roles"
)

// workerRole is the only entry of node.roles without an election.
const workerRole = "worker"

// Node is one process of the cluster.
type Node struct {
	opts options
	// cfg is the configuration of New; current is the one in use.
	cfg         *Config
	current     atomic.Pointer[Config]
	incarnation string
	self        nodestore.Node             // the node's row in forge_nodes
	metadata    map[string]json.RawMessage // of custom roles, published with each term

	// New creates the parts, and Run runs them.
	cleanup       cleanup
	logger        *slog.Logger
	metrics       *metrics.Metrics
	tracer        *tracing.Tracer // nil without tracing
	pool          *pgxpool.Pool
	heartbeatPool *pgxpool.Pool // for heartbeats alone
	notifier      *postgres.Notifier
	runner        *jobs.Runner
	elections     *roles.Elections
	leases        roles.Leases  // nil unless Lease objects of Kubernetes elect
	deputy        *roles.Deputy // nil without candidacies, and with the lease strategy
	broadcaster   *broadcaster
	callbackLoop  *callbackLoop
	healthWatcher *healthWatcher
	writes        *writeCheck

	// The state while the node runs.
	used            atomic.Bool // by Run or Close
	readiness       readiness
	outage          outage
	admission       admission
	receivers       atomic.Pointer[alerts.Sender]
	reloadRequested chan struct{} // set by Reload
	unconfirmedHash string        // hash of the configuration that waits for confirmation, or empty
	rows            checkedRows   // used by keepRows alone
}

// New returns a node that is not running and not connected. cfg comes from LoadConfig or
// ParseConfig. New copies it, but not its maps and lists, so a program can change node.id
// and http.listen for its next node. The error names missing or wrong settings. A node
// whose Run is not called must be closed.
func New(cfg *Config, opts ...Option) (*Node, error) {
	cfg = ownConfig(cfg)
	n := &Node{
		opts: options{logger: slog.Default(), version: "dev", ready: func() {}},
		cfg:  cfg, incarnation: nodestore.NewIncarnation(), reloadRequested: make(chan struct{}, 1),
	}
	for _, opt := range opts {
		opt(&n.opts)
	}
	n.current.Store(cfg)
	if err := errors.Join(cfg.RequireDatabase(), cfg.RequireAuth(), n.checkAlerts(cfg), n.checkUsers(cfg)); err != nil {
		return nil, err
	}
	n.createLog()
	for _, create := range []func() error{n.createDatabase, n.createJobs, n.createRoles} {
		if err := create(); err != nil {
			return nil, errors.Join(err, n.cleanup.run())
		}
	}
	return n, nil
}

// createLog creates the log, the metrics and the tracer.
func (n *Node) createLog() {
	n.tracer = tracing.New(n.opts.tracing, n.opts.version)
	repeated := newRepeatHandler(n.tracer.LogHandler(n.opts.logger.Handler()))
	n.cleanup.add("log", func() error { repeated.Flush(); return nil })
	n.logger = slog.New(repeated)
	n.metrics = metrics.New(n.opts.version)
}

// createDatabase creates the connection pools, which connect on demand, and what uses
// nothing else.
func (n *Node) createDatabase() (err error) {
	election := n.electionConfig()
	n.pool, err = postgres.NewPool(context.Background(), postgres.PoolOptions{
		URL: n.cfg.Database.URL, Schema: n.cfg.Database.Schema, MaxConns: n.cfg.Database.PoolSize,
		ApplicationName:   leaderstore.ApplicationName(n.cfg.Node.ID, n.incarnation),
		IdleInTransaction: election.LeaseDuration.Std(),
		Pooled:            election.ByLease(),
		Admit:             n.admission.check(n.incarnation),
		Tracer:            tracer{},
	})
	if err != nil {
		return err
	}
	n.cleanup.add("database", closePool(n.pool))
	if n.heartbeatPool, err = postgres.Dedicated(context.Background(), n.pool); err != nil {
		return err
	}
	n.cleanup.add("heartbeats", closePool(n.heartbeatPool))
	n.notifier = n.newNotifier()
	n.writes = n.newWriteCheck()
	n.healthWatcher = n.newHealthWatcher()
	return nil
}

// createJobs creates the runner of jobs and the node's row, which lists its workers.
func (n *Node) createJobs() (err error) {
	n.runner, err = jobs.New(jobs.Options{
		Pool:                n.pool,
		NodeID:              n.cfg.Node.ID,
		Incarnation:         n.incarnation,
		Schema:              n.cfg.Database.Schema,
		Notifier:            n.notifier,
		Jobs:                n.cfg.Jobs,
		Queues:              queuesOf(n.cfg),
		Reserved:            reservedOf(n.cfg),
		Slots:               n.cfg.Node.Slots,
		Workers:             n.opts.workers,
		DrainTimeout:        n.cfg.Node.DrainTimeout.Std(),
		ClusterURL:          n.cfg.Database.URL,
		AllowedCommands:     n.cfg.Node.AllowedCommands,
		AllowPrivateTargets: n.cfg.HTTP.AllowPrivateTargets,
		AllowTargets:        n.cfg.HTTP.AllowedTargets(),
		Middleware:          n.opts.middleware,
		Tracer:              n.tracer,
		Metrics:             n.metrics,
		Logger:              n.logger,
	})
	if err != nil {
		return err
	}
	n.self, err = n.describe(n.cfg)
	return err
}

// createRoles creates the elections with the work of each role, the deputy, and what reacts
// to changes of leadership.
func (n *Node) createRoles() error {
	election := n.electionConfig()
	n.broadcaster = newBroadcaster()
	n.callbackLoop = newCallbackLoop(n.opts.callbacks, n.incarnation, election.CheckInterval.Std(), n.readLeaders)
	roleConfigs, err := n.roleConfigs()
	if err != nil {
		return err
	}
	if err := n.createLeases(); err != nil {
		return err
	}
	n.elections = roles.NewElections(roles.Options{
		NodeID:          n.cfg.Node.ID,
		Roles:           roleConfigs,
		OpenSession:     n.openSession,
		CheckInterval:   election.CheckInterval.Std(),
		LeaseDuration:   election.LeaseDuration.Std(),
		RefreshInterval: election.RefreshInterval.Std(),
		// Longer than the node takes to notice that it is being drained.
		BackOff:      3 * max(election.CheckInterval.Std(), n.cfg.Cluster.HeartbeatInterval.Std()),
		TakeoverWait: leaderstore.New(n.pool).TakeoverWait,
		OnChange:     n.leadershipChanged,
		OnTerm:       n.callbackLoop.addChange,
		Metrics:      n.metrics,
		Tracer:       n.tracer,
		Logger:       n.logger,
	})
	if len(roleConfigs) > 0 && !election.ByLease() { // otherwise there are no sessions to watch
		n.deputy = roles.NewDeputy(roles.DeputyOptions{
			Incarnation: n.incarnation, OpenWatch: n.openWatch, ReadCluster: n.readCluster,
			OnSessionEnd: n.elections.ElectNow, Logger: n.logger,
		})
	}
	return nil
}

// Run runs the node until ctx ends, which is not an error. It then hands its roles over,
// drains its jobs and leaves the cluster. A Node runs once; Run closes it before it
// returns. A further call, and a call after Close, returns an error.
func (n *Node) Run(ctx context.Context) (err error) {
	if n.used.Swap(true) {
		return errUsed
	}
	defer func() { err = errors.Join(err, n.cleanup.run()) }()
	listener, err := n.openListener()
	if err != nil {
		return err
	}
	n.cleanup.add("listener", closeListener(listener))
	if n.self.APIURL == "" {
		n.self.APIURL = n.urlOf(listener.Addr())
	}
	member := n.newMember()
	err = doctor.ExplainGrants(ctx, n.pool, n.cfg.Database.Schema, n.join(ctx, member))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	return n.serve(ctx, listener, member)
}

var errUsed = errors.New("the node has run or was closed; a node runs once: create another with forge.New")

// join migrates the database, joins the cluster and applies the file.
func (n *Node) join(ctx context.Context, member *nodestore.Member) error {
	if err := postgres.Ping(ctx, n.pool); err != nil {
		return err
	}
	server := engine.Options{URL: n.cfg.Database.URL, LeaderURL: n.cfg.Database.LeaderURL}
	if !n.byLease() {
		if err := engine.CheckSessions(ctx, server); err != nil {
			return err
		}
	}
	if err := engine.CheckLeaderURL(ctx, server); err != nil {
		return err
	}
	if err := postgres.EnsureSchema(ctx, n.pool, n.cfg.Database.Schema); err != nil {
		return err
	}
	if err := migrations.New(n.pool, n.logger).Up(ctx); err != nil {
		return err
	}
	if err := member.Join(ctx); err != nil {
		return err
	}
	n.admission.joined.Store(true)
	if err := member.RunDuring(ctx, n.applyOwn); err != nil { // may wait for another node
		return err
	}
	return n.keepQueues(ctx)
}

// serve runs all services, those on which others depend in the outer tiers. The listener
// answers until the end, the heartbeat runs until the jobs are drained, and leadership is
// handed over first.
func (n *Node) serve(ctx context.Context, listener net.Listener, member *nodestore.Member) error {
	reporter := aggregator.NewReporter(n.pool, aggregator.ReporterOptions{
		NodeID: n.cfg.Node.ID, Incarnation: n.incarnation,
		Interval: n.cfg.Metrics.ScrapeInterval.Std(), Metrics: n.metrics, Logger: n.logger,
	})
	n.initMetrics()
	n.initConfigured(n.cfg)
	n.writes.check(ctx)

	starvation := watchdog.StarvationMeter{Add: n.metrics.NodeStarvedSeconds.Add, Logger: n.logger}
	err := runServices(ctx,
		[]service{
			{"listener", func(ctx context.Context) error { return n.listen(ctx, listener) }},
		},
		[]service{
			{"membership", n.runHeartbeat(member)},
			{"leases", n.runLeases},
			{"metrics", reporter.Run},
			{"leader file", n.keepLeaderFile},
			{"callbacks", n.callbackLoop.Run},
			{"readiness", n.writes.run},
			{"starvation", starvation.Run},
		},
		[]service{
			{"jobs", n.work},
		},
		[]service{
			{"drain", n.announceDrain(member)},
			{"ready", n.announceReady},
			{"election", n.elections.Run},
			{"deputy", n.runDeputy},
			{"health", n.healthWatcher.run},
			{"configuration", n.keepConfiguration},
			{"rows", n.keepRows},
		},
	)
	n.logger.InfoContext(ctx, "node has stopped", "node", n.cfg.Node.ID)
	return err
}

// Close releases the resources of a node whose Run is not called. Further calls do nothing,
// nor does a call while the node runs or after that: end the context of Run instead.
func (n *Node) Close() {
	if n.used.Swap(true) {
		return
	}
	if err := n.cleanup.run(); err != nil {
		n.logger.Warn("could not close the node in order", "error", err)
	}
}

// Client returns the node's River client, which also inserts jobs in the program's own
// transactions. It works once Run has migrated the database.
func (n *Node) Client() *river.Client[pgx.Tx] { return n.runner.Client() }

func (n *Node) readLeaders(ctx context.Context) ([]leaderstore.Leader, error) {
	return leaderstore.New(n.pool).Leaders(ctx)
}

// Ready returns a channel that is closed once the node works jobs and takes part in
// elections.
func (n *Node) Ready() <-chan struct{} { return n.readiness.readyChan() }
