package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// AllRoles returns the configured roles first, including those that have no row because
// they never had a leader, and then the others as they were read.
func (s *Cluster) AllRoles(leaders []leaderstore.Leader) []leaderstore.Leader {
	byRole := map[string]leaderstore.Leader{}
	for _, l := range leaders {
		byRole[l.Role] = l
	}
	all := make([]leaderstore.Leader, 0, len(leaders))
	for _, role := range s.Roles {
		l := byRole[role]
		l.Role = role
		all = append(all, l)
		delete(byRole, role)
	}
	for _, l := range leaders {
		if _, left := byRole[l.Role]; left {
			all = append(all, l)
		}
	}
	return all
}

// SchedulerRole is the role whose leader counts as the cluster's leader in the documents
// under /cluster.
const SchedulerRole = "scheduler"

// Self describes the node that serves the pages.
type Self struct {
	Cluster     string
	NodeID      string
	Incarnation string
	Version     string
	APIURL      string
}

// Options are what the pages and the API read and change. Source, Self, Roles and
// Ready are required; everything else is optional.
type Options struct {
	Source Source
	Self   Self
	// Roles are the roles that this cluster elects a leader for, in display order.
	Roles []string
	// Ready returns nil if the node can serve. Each error that it joins names one reason
	// why it cannot. An [UnreadyError] holds details that only callers with a token may
	// read.
	Ready func(ctx context.Context) error
	// Outage returns why the database does not serve the node and since when, without names of
	// hosts; empty if it does. It is optional.
	Outage func() string
	// CronOps and CronRunner change crons. Unless both are set, crons are read-only.
	CronOps    CronOps
	CronRunner CronRunner
	// JobOps changes jobs. Without it, jobs are read-only.
	JobOps JobOps
	// Enqueuer adds jobs. Without it, no jobs can be added.
	Enqueuer Enqueuer
	// QueueOps pauses queues. Without it, queues are read-only.
	QueueOps QueueOps
	// DeadLetterOps changes dead letters. Without it, dead letters are read-only.
	DeadLetterOps DeadLetterOps
	// RoleOps hands roles over and drains nodes. Without it, neither is possible.
	RoleOps RoleOps
	// Silencer silences and tests alerts. Without it, neither is possible.
	Silencer Silencer
	// TokenKeeper creates and revokes tokens. Without it, only the commands do.
	TokenKeeper TokenKeeper
	// SessionKeeper ends the sessions of users. Without it, only the command does.
	SessionKeeper SessionKeeper
	// Settings returns the node's effective configuration as a tree, with secrets redacted.
	// Without it, there is no settings page.
	Settings func() map[string]any
	// Configs reads the configurations that were in force and reverts to them. Without it,
	// neither is possible.
	Configs Configs
	// Doctor checks the database, the connection to it and the cluster. Without it, there are
	// no checks.
	Doctor func(ctx context.Context) ([]Finding, error)
	Logger *slog.Logger
	Now    func() time.Time
	// Lifetime is the context of the node. It ends background reads that no request waits
	// for. It is optional.
	Lifetime context.Context //nolint:containedctx // passed to work that outlives a request
	// CountTimeout is how long a page waits for the count of all jobs. 0 selects a default.
	CountTimeout time.Duration
}

// Cluster is what the pages and the API read and change.
type Cluster struct {
	Options

	Counts    *Cache[[]jobstore.Count]
	Dead      *Cache[[]jobstore.DeadGroup]
	Outlines  *Cache[outline]
	verdicts  *Cache[map[string]cronstore.Verdict]
	Ticks     *tickCache
	Rates     *Cache[aggregator.Rates]
	Readiness *recent[error]
	// Findings are the results of Doctor that pages show.
	Findings  *Cache[[]Finding]
	Incidents *incidentCache
	reports   *reportCache
}

// New returns the cluster of a node.
func New(opts Options) *Cluster {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Outage == nil {
		opts.Outage = func() string { return "" }
	}
	s := &Cluster{Options: opts}
	s.Counts = s.newCounts()
	s.Dead = NewCache(opts.Lifetime, 2*time.Second, s.allDead)
	s.Ticks = newTickCache(opts.Source.Crons, opts.Source.Jobs)
	s.Outlines = NewCache(opts.Lifetime, keepOutline, s.outline)
	s.verdicts = NewCache(opts.Lifetime, keepOutline, opts.Source.Crons.Verdicts)
	s.Rates = NewCache(opts.Lifetime, keepRates, opts.Source.Leadership.Rates)
	s.Findings = s.newFindings()
	s.Readiness = newRecent(opts.Ready)
	s.Incidents = newIncidentCache(opts.Source.Incidents)
	s.reports = &reportCache{source: opts.Source.Reports, lifetime: opts.Lifetime}
	return s
}

// keepRates is how long pages and the API share the rates of renewals and heartbeats. Nodes
// report new ones at each metrics.scrape_interval.
const keepRates = 10 * time.Second
