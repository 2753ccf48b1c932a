package forge

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/dbpool"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
	"github.com/forge-scheduler/forge/scheduler"
	"github.com/forge-scheduler/forge/scheduler/assign"
	"github.com/forge-scheduler/forge/scheduler/crons"
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
		Admit:             n.admission.check(n.incarnation),
	})
	if err != nil {
		return err
	}
	if n.runner, err = n.newRunner(); err != nil {
		return err
	}
	if n.self, err = n.describe(); err != nil {
		return err
	}
	contests, err := n.contests()
	if err != nil {
		return err
	}
	n.campaign = n.newCampaign(contests)
	if len(contests) > 0 {
		n.deputy = roles.NewDeputy(roles.DeputyOptions{
			Incarnation: n.incarnation, Open: n.openWatch, Cluster: n.lookAround,
			Hurry: n.campaign.Hurry, Logger: n.logger,
		})
	}
	return nil
}

func (n *Node) newRunner() (*jobs.Runner, error) {
	queues := map[string]int{}
	if n.cfg.Node.HasRole(workerRole) {
		for name := range n.cfg.Queues {
			queues[name] = n.cfg.QueueWorkers(name)
		}
	}
	return jobs.New(jobs.Options{
		Pool:                n.pool,
		NodeID:              n.cfg.Node.ID,
		Incarnation:         n.incarnation,
		Schema:              n.cfg.Database.Schema,
		Jobs:                n.cfg.Jobs,
		Queues:              queues,
		Slots:               n.cfg.Node.Slots,
		Workers:             n.opts.workers,
		DrainTimeout:        n.cfg.Node.DrainTimeout.Std(),
		ClusterURL:          n.cfg.Database.URL,
		AllowPrivateTargets: n.cfg.HTTP.AllowPrivateTargets,
		Metrics:             n.metrics,
		Logger:              n.logger,
	})
}

// describe is the node's row in forge_nodes, but for its address, which is
// known once it listens.
func (n *Node) describe() (nodestore.Node, error) {
	host, _ := os.Hostname() // only shown
	self := nodestore.Node{
		NodeID: n.cfg.Node.ID, Incarnation: n.incarnation, Hostname: host, PID: os.Getpid(),
		Version: n.opts.version, APIURL: n.cfg.Node.APIURL,
		Roles: n.cfg.Node.Roles, Capabilities: n.cfg.Node.WorkerCapabilities, Tags: n.cfg.Node.Tags,
		Slots: n.cfg.Node.Slots,
	}
	if n.cfg.Node.HasRole(workerRole) {
		self.Kinds, self.Queues = n.runner.Kinds(), n.runner.Queues()
	}
	var err error
	_, self.ConfigHash, err = n.cfg.ClusterSections()
	return self, err
}

// contests are the roles that this node stands for.
func (n *Node) contests() ([]roles.Contest, error) {
	var contests []roles.Contest
	for _, role := range roles.All() {
		if !n.cfg.Node.HasRole(string(role)) {
			continue
		}
		id, err := n.lockID(role)
		if err != nil {
			return nil, err
		}
		duty, err := n.duty(role)
		if err != nil {
			return nil, err
		}
		contests = append(contests, roles.Contest{Role: role, LockID: id, Duty: duty})
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
		Metrics:   n.metrics,
		Logger:    n.logger,
	})
}

func (n *Node) lockID(role roles.Role) (int64, error) {
	if own := n.election().Roles[string(role)].LockID; own != 0 {
		return own, nil
	}
	return role.LockID(n.cfg.Cluster.LockNamespace)
}

// duty is what the leader of a role does.
func (n *Node) duty(role roles.Role) (roles.Duty, error) {
	switch role {
	case roles.Scheduler:
		return n.schedulerDuty()
	case roles.MetricsAggregator:
		return aggregator.New(n.pool, aggregator.Options{
			Interval: n.cfg.Metrics.ScrapeInterval.Std(), Metrics: n.metrics, Logger: n.logger,
		}).Lead, nil
	case roles.LogCompactor:
		return compactor.New(n.pool, compactor.Options{
			Retention: n.retention(), Metrics: n.metrics, Logger: n.logger,
		}).Lead, nil
	default:
		return nil, fmt.Errorf("role %s has no work", role)
	}
}

func (n *Node) schedulerDuty() (roles.Duty, error) {
	schema := n.cfg.Database.Schema
	assigner, err := assign.New(assign.Options{
		Pool: n.pool, Metrics: n.metrics, Logger: n.logger, Schema: schema,
		Strategy: n.cfg.Scheduler.Assignment,
	})
	if err != nil {
		return nil, err
	}
	return scheduler.New(
		crons.New(crons.Options{
			Pool: n.pool, Inserter: n.runner, Metrics: n.metrics, Logger: n.logger, Schema: schema,
		}),
		assigner,
		rescue.New(rescue.Options{
			Pool: n.pool, Metrics: n.metrics, Logger: n.logger, Policy: n.policy(),
		}),
	).Lead, nil
}

func (n *Node) retention() compactor.Retention {
	keep := n.cfg.Retention
	return compactor.Retention{
		Completed: keep.Completed.Std(), Cancelled: keep.Cancelled.Std(), Discarded: keep.Discarded.Std(),
		CronTicks: keep.CronTicks.Std(), Logs: keep.Logs.Std(), Events: keep.Events.Std(),
		History: n.election().HistoryRetention.Std(),
	}
}

// policy says when a silent node is dead.
func (n *Node) policy() nodestore.Policy {
	return nodestore.Policy{
		HeartbeatInterval: n.cfg.Cluster.HeartbeatInterval.Std(),
		DeadThreshold:     n.cfg.Cluster.DeadThreshold.Std(),
	}
}

func (n *Node) openSession(ctx context.Context) (roles.Session, error) {
	names := make([]string, 0, len(roles.All()))
	for _, role := range roles.All() {
		names = append(names, string(role))
	}
	session, err := leaderstore.OpenSession(ctx, n.sessionConfig(), names)
	if err != nil {
		return nil, err
	}
	return session, nil
}

func (n *Node) sessionConfig() leaderstore.SessionConfig {
	class, object := nodestore.SessionLock(n.incarnation)
	return leaderstore.SessionConfig{
		URL: n.cfg.Database.LeaderURL, Schema: n.cfg.Database.Schema,
		NodeID: n.cfg.Node.ID, Incarnation: n.incarnation, APIURL: n.self.APIURL,
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
	var cluster roles.Cluster
	for _, leader := range leaders {
		if leader.Leads() {
			cluster.Leaders = append(cluster.Leaders, leader.Incarnation)
		}
	}
	for _, node := range nodes {
		fresh := node.Now.Sub(node.LastHeartbeatAt) < n.policy().DeadThreshold+time.Second
		if node.State == nodestore.Active && fresh && len(node.Roles) > 0 {
			cluster.Candidates = append(cluster.Candidates, node.Incarnation)
		}
	}
	return cluster, nil
}
