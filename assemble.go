package forge

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronexpr"
	"github.com/forge-scheduler/forge/internal/dbpool"
	"github.com/forge-scheduler/forge/internal/hearing"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/rollupstore"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
	"github.com/forge-scheduler/forge/scheduler"
	"github.com/forge-scheduler/forge/scheduler/assign"
	"github.com/forge-scheduler/forge/scheduler/crons"
	"github.com/forge-scheduler/forge/scheduler/deadletters"
	"github.com/forge-scheduler/forge/scheduler/rescue"
)

// workerRole is the one entry of node.roles that is not elected.
const workerRole = "worker"

// assemble builds every part of the node, bottom up; none of them starts.
func (n *Node) assemble(ctx context.Context) error {
	var err error
	n.pool, err = dbpool.New(ctx, dbpool.Options{
		URL: n.cfg.Database.URL, Schema: n.cfg.Database.Schema, MaxConns: n.cfg.Database.PoolSize,
		ApplicationName:   leaderstore.ApplicationName(n.cfg.Node.ID, n.incarnation),
		IdleInTransaction: n.election().LeaseDuration.Std(),
		Pooled:            n.byLease(),
		Admit:             n.admission.check(n.incarnation),
		Tracer:            tracer{},
	})
	if err != nil {
		return err
	}
	n.hub = hearing.New(n.pool, n.logger)
	if n.runner, err = n.newRunner(); err != nil {
		return err
	}
	if n.self, err = n.describe(n.cfg); err != nil {
		return err
	}
	contests, err := n.contests()
	if err != nil {
		return err
	}
	n.campaign = n.newCampaign(contests)
	if len(contests) > 0 && !n.byLease() { // else there are no sessions to watch
		n.deputy = roles.NewDeputy(roles.DeputyOptions{
			Incarnation: n.incarnation, Open: n.openWatch, Cluster: n.lookAround,
			Hurry: n.campaign.Hurry, Logger: n.logger,
		})
	}
	return nil
}

// queuesOf are the queues that a node with this file works.
func queuesOf(cfg *Config) map[string]int {
	queues := map[string]int{}
	if cfg.Node.HasRole(workerRole) {
		for name := range cfg.Queues {
			queues[name] = cfg.QueueWorkers(name)
		}
	}
	return queues
}

func (n *Node) newRunner() (*jobs.Runner, error) {
	return jobs.New(jobs.Options{
		Pool:                n.pool,
		NodeID:              n.cfg.Node.ID,
		Incarnation:         n.incarnation,
		Schema:              n.cfg.Database.Schema,
		Poll:                n.poll(),
		Hub:                 n.hub,
		Jobs:                n.cfg.Jobs,
		Queues:              queuesOf(n.cfg),
		Slots:               n.cfg.Node.Slots,
		Workers:             n.opts.workers,
		DrainTimeout:        n.cfg.Node.DrainTimeout.Std(),
		ClusterURL:          n.cfg.Database.URL,
		AllowedCommands:     n.cfg.Node.AllowedCommands,
		AllowPrivateTargets: n.cfg.HTTP.AllowPrivateTargets,
		AllowTargets:        n.cfg.HTTP.AllowedTargets(),
		Metrics:             n.metrics,
		Logger:              n.logger,
	})
}

// describe is the node's row in forge_nodes, but for its address, which is
// known once it listens.
func (n *Node) describe(cfg *Config) (nodestore.Node, error) {
	host, _ := os.Hostname() // only shown
	self := nodestore.Node{
		NodeID: cfg.Node.ID, Incarnation: n.incarnation, Hostname: host, PID: os.Getpid(),
		Version: n.opts.version, TZData: cronexpr.TZDataVersion(), APIURL: cfg.Node.APIURL,
		Roles: n.takesPartIn(), Capabilities: cfg.Node.WorkerCapabilities, Tags: cfg.Node.Tags,
		Slots: cfg.Node.Slots,
	}
	if cfg.Node.HasRole(workerRole) {
		self.Kinds, self.Queues = n.runner.Kinds(), n.runner.Queues()
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

// contests are the roles that this node stands for.
func (n *Node) contests() ([]roles.Contest, error) {
	all, err := n.customContests()
	if err != nil {
		return nil, err
	}
	for _, role := range roles.All() {
		lock, err := roles.Lock(role, n.election().Roles[string(role)].LockID, n.cfg.Cluster.LockNamespace)
		if err != nil {
			return nil, err
		}
		all = append(all, roles.Contest{Role: role, LockID: lock.ID, BySchema: lock.BySchema})
	}
	if err := roles.CheckLocks(all); err != nil {
		return nil, err
	}
	contests := slices.DeleteFunc(all, func(c roles.Contest) bool { return !n.stands(string(c.Role)) })
	for i, contest := range contests {
		if contest.Duty != nil {
			continue
		}
		if contests[i].Duty, err = n.builtIn(contest.Role); err != nil {
			return nil, err
		}
		delay := n.election().Roles[string(contest.Role)].TakeoverDelay.Std()
		contests[i].Takeover = roles.AfterTakeover(delay, n.pool, n.logger)
	}
	return contests, nil
}

func (n *Node) newCampaign(contests []roles.Contest) *roles.Campaign {
	election := n.election()
	return roles.New(roles.Options{
		NodeID:          n.cfg.Node.ID,
		Contests:        contests,
		Open:            n.openSession,
		CheckInterval:   election.CheckInterval.Std(),
		LeaseDuration:   election.LeaseDuration.Std(),
		RefreshInterval: election.RefreshInterval.Std(),
		// Longer than it takes the node to hear that it is being drained.
		StandBack: 3 * max(election.CheckInterval.Std(), n.cfg.Cluster.HeartbeatInterval.Std()),
		OnChange:  n.leadershipChanged,
		OnTerm:    n.herald.term,
		Metrics:   n.metrics,
		Logger:    n.logger,
	})
}

// builtIn is what the leader of a built-in role does. It begins at once, since a fence
// guards all that it writes, unless the file wants it otherwise.
func (n *Node) builtIn(role roles.Role) (roles.Duty, error) {
	switch role {
	case roles.Scheduler:
		return n.schedulerDuty()
	case roles.MetricsAggregator:
		return n.aggregatorDuty()
	case roles.LogCompactor:
		return compactor.New(n.pool, compactor.Options{
			Retention: n.retention, Metrics: n.metrics, Logger: n.logger,
		}).Lead, nil
	default:
		return nil, fmt.Errorf("role %s has no work", role)
	}
}

func (n *Node) schedulerDuty() (roles.Duty, error) {
	schema := n.cfg.Database.Schema
	assigner, err := assign.New(assign.Options{
		Pool: n.pool, Metrics: n.metrics, Logger: n.logger, Schema: schema,
		Strategy: n.cfg.Scheduler.Assignment, Poll: n.poll(), Hub: n.hub,
	})
	if err != nil {
		return nil, err
	}
	inserter, err := n.runner.SilentInserter()
	if err != nil {
		return nil, err
	}
	letters := deadletters.New(deadletters.Options{Pool: n.pool, Metrics: n.metrics, Logger: n.logger})
	return scheduler.New(
		crons.New(crons.Options{
			Pool: n.pool, Inserter: inserter, Metrics: n.metrics, Logger: n.logger, Schema: schema,
			Poll: n.poll(), Hub: n.hub,
		}),
		assigner,
		rescue.New(rescue.Options{
			Pool: n.pool, Metrics: n.metrics, Logger: n.logger, Policy: n.policy(), Along: letters.Ride,
		}),
		letters,
	).Lead, nil
}

func (n *Node) retention() compactor.Retention {
	keep, rollups := n.current.Load().Retention, n.current.Load().Metrics.Rollups
	return compactor.Retention{
		Completed: keep.Completed.Std(), Cancelled: keep.Cancelled.Std(), Discarded: keep.Discarded.Std(),
		CronTicks: keep.CronTicks.Std(), Logs: keep.Logs.Std(), Events: keep.Events.Std(), Metrics: keep.Metrics.Std(), Audit: keep.Audit.Std(),
		History: n.election().HistoryRetention.Std(),
		Rollups: map[rollupstore.Step]time.Duration{
			rollupstore.Minute: rollups.Minute.Std(), rollupstore.FiveMinutes: rollups.FiveMinutes.Std(), rollupstore.Hour: rollups.Hour.Std(),
		},
	}
}

// policy says when a silent node is dead.
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
		Lease:         n.election().LeaseDuration.Std(),
		CheckInterval: n.election().CheckInterval.Std(),
		LockTimeout:   n.election().LockTimeout.Std(),
		NodeLockClass: class, NodeLockObject: object,
	}
}

// watch adapts leaderstore's deputy connection to incarnations.
type watch struct{ *leaderstore.Watch }

func (w watch) AwaitEnd(ctx context.Context, incarnation string) (time.Time, error) {
	class, object := nodestore.SessionLock(incarnation)
	return w.Watch.AwaitEnd(ctx, class, object)
}

func (n *Node) openWatch(ctx context.Context) (roles.Watch, error) {
	opened, err := leaderstore.OpenWatch(ctx, n.sessionConfig())
	if err != nil {
		return nil, err
	}
	return watch{opened}, nil
}

// lookAround tells the deputy who leads and who could.
func (n *Node) lookAround(ctx context.Context) (roles.Cluster, error) {
	leaders, err := leaderstore.Leaders(ctx, n.pool)
	if err != nil {
		return roles.Cluster{}, err
	}
	nodes, err := nodestore.List(ctx, n.pool)
	if err != nil {
		return roles.Cluster{}, err
	}
	if err := n.vigil.look(ctx, leaders, nodes); err != nil && ctx.Err() == nil {
		n.logger.DebugContext(ctx, "the next look judges the cluster's health", "error", err)
	}
	return succession(leaders, nodes, n.policy().DeadThreshold), nil
}

// succession says for each leader which live nodes stand for a role of its.
func succession(leaders []leaderstore.Leader, nodes []nodestore.Node, deadThreshold time.Duration) roles.Cluster {
	cluster := roles.Cluster{Candidates: map[string][]string{}}
	for _, leader := range leaders {
		if !leader.Leads() {
			continue
		}
		cluster.Leaders = append(cluster.Leaders, leader.Incarnation)
		candidates := cluster.Candidates[leader.Incarnation]
		for _, node := range nodes {
			fresh := node.Now.Sub(node.LastHeartbeatAt) < deadThreshold+time.Second
			if node.State == nodestore.Active && fresh && slices.Contains(node.Roles, leader.Role) &&
				!slices.Contains(candidates, node.Incarnation) {
				candidates = append(candidates, node.Incarnation)
			}
		}
		cluster.Candidates[leader.Incarnation] = candidates
	}
	return cluster
}
