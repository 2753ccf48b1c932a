package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronexpr"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
	"github.com/forge-scheduler/forge/scheduler"
	"github.com/forge-scheduler/forge/scheduler/assign"
	"github.com/forge-scheduler/forge/scheduler/crons"
	"github.com/forge-scheduler/forge/scheduler/deadletters"
	"github.com/forge-scheduler/forge/scheduler/rescue"
)

// ownConfig returns a node's copy of the configuration: the program may change its own for
// another node, and may have set database.url after the configuration was loaded.
func ownConfig(cfg *Config) *Config {
	own := *cfg
	own.Database.LeaderURL = cmp.Or(own.Database.LeaderURL, own.Database.URL)
	return &own
}

// queuesOf returns the queues that a node with this configuration works.
func queuesOf(cfg *Config) map[string]int {
	queues := map[string]int{}
	if cfg.Node.HasRole(workerRole) {
		for name := range cfg.Queues {
			queues[name] = cfg.QueueWorkers(name)
		}
	}
	return queues
}

// reservedOf returns the slots that queues reserve on a node with this configuration.
func reservedOf(cfg *Config) map[string]int {
	reserved := map[string]int{}
	for name := range queuesOf(cfg) {
		if slots := cfg.QueueReserve(name); slots > 0 {
			reserved[name] = slots
		}
	}
	return reserved
}

// describe returns the node's row in forge_nodes, without its address, which is known once
// the node listens.
func (n *Node) describe(cfg *Config) (nodestore.Node, error) {
	host, _ := os.Hostname() // for display only
	self := nodestore.Node{
		NodeID: cfg.Node.ID, Incarnation: n.incarnation, Hostname: host, PID: os.Getpid(),
		Version: n.opts.version, TZData: cronexpr.TZDataVersion(), APIURL: cfg.Node.APIURL,
		Roles: n.participatingRoles(), Capabilities: cfg.Node.WorkerCapabilities, Tags: cfg.Node.Tags,
		Slots: cfg.Node.Slots,
	}
	if cfg.Node.HasRole(workerRole) {
		self.Kinds, self.Queues, self.RiverKinds = n.runner.Kinds(), n.runner.Queues(), n.runner.RiverKinds()
		self.Reserved = n.runner.Reserved()
	}
	sections, hash, err := cfg.ClusterSections()
	if err != nil {
		return self, err
	}
	if cfg.HasClusterSections() {
		self.ConfigHash = hash
	}
	self.Definitions, err = config.Definitions(sections)
	return self, err
}

// roleConfigs returns the roles in which this node is a candidate.
func (n *Node) roleConfigs() ([]roles.RoleConfig, error) {
	all, err := n.customRoleConfigs()
	if err != nil {
		return nil, err
	}
	for _, role := range roles.All() {
		lock, err := roles.Lock(role, n.electionConfig().Roles[string(role)].LockID, n.cfg.Cluster.LockNamespace)
		if err != nil {
			return nil, err
		}
		all = append(all, roles.RoleConfig{Role: role, LockID: lock.ID, BySchema: lock.BySchema})
	}
	if err := roles.CheckLocks(all); err != nil {
		return nil, err
	}
	roleConfigs := slices.DeleteFunc(all, func(c roles.RoleConfig) bool { return !n.participates(string(c.Role)) })
	for i, roleConfig := range roleConfigs {
		if roleConfig.Lead != nil {
			continue
		}
		work, err := n.builtInWork(roleConfig.Role)
		if err != nil {
			return nil, err
		}
		roleConfigs[i].Lead = roles.Watched(work)
		roleConfigs[i].TakeoverDelay = n.electionConfig().Roles[string(roleConfig.Role)].TakeoverDelay.Std()
	}
	return roleConfigs, nil
}

// builtInWork returns the work of a built-in role. It begins without a takeover delay
// unless one is configured, because a fence guards all of its writes.
func (n *Node) builtInWork(role roles.Role) (roles.WorkFunc, error) {
	switch role {
	case roles.Scheduler:
		return n.schedulerWork()
	case roles.MetricsAggregator:
		return n.aggregatorWork()
	case roles.LogCompactor:
		return compactor.New(n.pool, compactor.Options{
			Retention: n.retention, Metrics: n.metrics, Logger: n.logger,
		}).Lead, nil
	default:
		return nil, fmt.Errorf("role %s has no work", role)
	}
}

func (n *Node) schedulerWork() (roles.WorkFunc, error) {
	schema := n.cfg.Database.Schema
	assigner, err := assign.New(assign.Options{
		Pool: n.pool, Metrics: n.metrics, Logger: n.logger, Schema: schema,
		Strategy: n.cfg.Scheduler.Assignment, Notifier: n.notifier, Tracer: n.tracer,
	})
	if err != nil {
		return nil, err
	}
	inserter, err := n.runner.SilentInserter()
	if err != nil {
		return nil, err
	}
	deadLetters := deadletters.New(deadletters.Options{Pool: n.pool, Metrics: n.metrics, Logger: n.logger})
	return scheduler.New(
		crons.New(crons.Options{
			Pool: n.pool, Inserter: inserter, Metrics: n.metrics, Logger: n.logger, Schema: schema,
			Notifier: n.notifier, Assigner: assigner, Tracer: n.tracer,
		}),
		assigner,
		rescue.New(rescue.Options{
			Pool: n.pool, Metrics: n.metrics, Logger: n.logger, Policy: n.policy(), Piggyback: deadLetters.Piggyback,
		}),
		deadLetters,
	).Lead, nil
}

func (n *Node) retention() compactor.Retention {
	keep, rollups := n.current.Load().Retention, n.current.Load().Metrics.Rollups
	return compactor.Retention{
		Completed: keep.Completed.Std(), Cancelled: keep.Cancelled.Std(), Discarded: keep.Discarded.Std(),
		CronTicks: keep.CronTicks.Std(), Logs: keep.Logs.Std(), Events: keep.Events.Std(), Metrics: keep.Metrics.Std(), Audit: keep.Audit.Std(),
		History: n.electionConfig().HistoryRetention.Std(),
		Rollups: map[aggregator.Step]time.Duration{
			aggregator.Minute: rollups.Minute.Std(), aggregator.FiveMinutes: rollups.FiveMinutes.Std(), aggregator.Hour: rollups.Hour.Std(),
		},
	}
}

// policy defines when a silent node is dead.
func (n *Node) policy() nodestore.Policy {
	return nodestore.Policy{
		HeartbeatInterval: n.cfg.Cluster.HeartbeatInterval.Std(),
		DeadThreshold:     n.cfg.Cluster.DeadThreshold.Std(),
		NoSessionLocks:    n.byLease(),
	}
}

func (n *Node) sessionConfig() leaderstore.SessionConfig {
	class, object := nodestore.SessionLock(n.incarnation)
	return leaderstore.SessionConfig{
		URL: n.cfg.Database.LeaderURL, Schema: n.cfg.Database.Schema,
		NodeID: n.cfg.Node.ID, Incarnation: n.incarnation, APIURL: n.self.APIURL,
		Metadata:      n.metadata,
		Lease:         n.electionConfig().LeaseDuration.Std(),
		CheckInterval: n.electionConfig().CheckInterval.Std(),
		LockTimeout:   n.electionConfig().LockTimeout.Std(),
		NodeLockClass: class, NodeLockObject: object,
	}
}

// deputyWatch converts incarnations to session locks for leaderstore.Watch.
type deputyWatch struct{ *leaderstore.Watch }

func (w deputyWatch) AwaitEnd(ctx context.Context, incarnation string) (time.Time, error) {
	class, object := nodestore.SessionLock(incarnation)
	return w.Watch.AwaitEnd(ctx, class, object)
}

func (n *Node) openWatch(ctx context.Context) (roles.Watch, error) {
	opened, err := leaderstore.OpenWatch(ctx, n.sessionConfig())
	if err != nil {
		return nil, err
	}
	return deputyWatch{opened}, nil
}

// readCluster reads the leaders and candidates for the deputy.
func (n *Node) readCluster(ctx context.Context) (roles.Cluster, error) {
	leaders, err := leaderstore.New(n.pool).Leaders(ctx)
	if err != nil {
		return roles.Cluster{}, err
	}
	nodes, err := nodestore.New(n.pool).Recorded(ctx)
	if err != nil {
		return roles.Cluster{}, err
	}
	if err := n.healthWatcher.update(ctx, leaders, nodes); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		n.logger.DebugContext(ctx, "could not evaluate the cluster's health, will retry", "error", err)
	}
	return candidatesByLeader(leaders, nodes, n.incarnation, n.policy().DeadThreshold), nil
}

// candidatesByLeader returns, for each leader, the live nodes that are candidates for at
// least one of its roles, for the node with the incarnation self.
func candidatesByLeader(leaders []leaderstore.Leader, nodes []nodestore.Node, self string, deadThreshold time.Duration) roles.Cluster {
	cluster := roles.Cluster{Candidates: map[string][]string{}}
	fresh := func(node nodestore.Node) bool { return node.Now.Sub(node.LastHeartbeatAt) < deadThreshold+time.Second }
	cluster.Late = slices.ContainsFunc(nodes, func(node nodestore.Node) bool {
		return node.Incarnation == self && node.State == nodestore.Active && !fresh(node)
	})
	for _, leader := range leaders {
		if !leader.Leads() {
			continue
		}
		cluster.Leaders = append(cluster.Leaders, leader.Incarnation)
		candidates := cluster.Candidates[leader.Incarnation]
		for _, node := range nodes {
			if node.State == nodestore.Active && fresh(node) && slices.Contains(node.Roles, leader.Role) &&
				!slices.Contains(candidates, node.Incarnation) {
				candidates = append(candidates, node.Incarnation)
			}
		}
		cluster.Candidates[leader.Incarnation] = candidates
	}
	return cluster
}

// byLease reports whether the lease strategy is configured, for a database behind a pooler
// in transaction mode. There, no session state lasts: leaders are elected by their rows,
// heartbeats show that a node is alive, and polling replaces notifications.
func (n *Node) byLease() bool { return n.electionConfig().ByLease() }

func (n *Node) newNotifier() *postgres.Notifier {
	if n.byLease() {
		return postgres.NewPollingNotifier(n.pool, n.electionConfig().CheckInterval.Std(), n.logger)
	}
	return postgres.NewNotifier(n.pool, n.logger)
}

// openSession opens the node's election session with the configured strategy.
func (n *Node) openSession(ctx context.Context) (roles.Session, error) {
	session, err := roles.OpenSession(ctx, n.sessionConfig(), n.roleNames(), n.byLease())
	if err != nil || n.leases == nil {
		return session, err
	}
	return n.leases.Session(session, leaderstore.New(n.pool)), nil
}

func (n *Node) electionConfig() config.LeaderElection { return n.cfg.Cluster.LeaderElection }

func (n *Node) newMember() *nodestore.Member {
	return nodestore.NewMember(nodestore.MemberOptions{
		Pool: n.pool, HeartbeatPool: n.heartbeatPool, Node: n.self, Policy: n.policy(), Metrics: n.metrics, Logger: n.logger,
		Running: n.runner.Running,
		OnState: func(state string) { n.elections.SetDraining(state != nodestore.Active) },
		OnBeat:  n.outage.record,
	})
}
