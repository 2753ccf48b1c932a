package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// profile is a set of times of [cluster.leader_election].
type profile struct {
	name                  string
	check, lease, refresh time.Duration
	lock                  time.Duration
}

var (
	standard = profile{"default", time.Second, 3 * time.Second, 750 * time.Millisecond, 200 * time.Millisecond}

	profiles = []profile{
		{"fast", 333 * time.Millisecond, time.Second, 250 * time.Millisecond, 100 * time.Millisecond},
		standard,
		{"calm", 5 * time.Second, 15 * time.Second, 4 * time.Second, time.Second},
		{"classic", 5 * time.Second, time.Minute, 30 * time.Second, 10 * time.Second},
	}
)

// node is one that campaigns for every role, without any other part.
type node struct {
	profile
	self nodestore.Node
	url  string
	pool *pgxpool.Pool
}

func newNode(n int, p profile, url string, pool *pgxpool.Pool) *node {
	return &node{profile: p, url: url, pool: pool, self: nodestore.Node{
		NodeID: fmt.Sprintf("n%d", n), Incarnation: fmt.Sprintf("%016x", n+1), Roles: roleNames(),
	}}
}

func roleNames() []string {
	var names []string
	for _, role := range roles.All() {
		names = append(names, string(role))
	}
	return names
}

// run campaigns until ctx ends.
func (n *node) run(ctx context.Context) error {
	var deputy *roles.Deputy
	campaign, err := n.campaign(func() { deputy.Refresh() })
	if err != nil {
		return err
	}
	deputy = roles.NewDeputy(roles.DeputyOptions{
		Incarnation: n.self.Incarnation, OpenWatch: n.watch, ReadCluster: n.lookAround, OnSessionEnd: campaign.ElectNow,
		Logger: slog.New(slog.DiscardHandler),
	})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return campaign.Run(ctx) })
	group.Go(func() error { return deputy.Run(ctx) })
	return group.Wait()
}

// beat keeps the node's heart going until ctx ends.
func (n *node) beat(ctx context.Context) error {
	return nodestore.NewMember(nodestore.MemberOptions{Pool: n.pool, Node: n.self, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
}

func (n *node) campaign(changed func()) (*roles.Elections, error) {
	var roleConfigs []roles.RoleConfig
	for _, role := range roles.All() {
		id, err := role.LockID(0)
		if err != nil {
			return nil, err
		}
		roleConfigs = append(roleConfigs, roles.RoleConfig{Role: role, LockID: id, Lead: roles.Unwatched(nothing)})
	}
	return roles.NewElections(roles.Options{
		NodeID: n.self.NodeID, Roles: roleConfigs, OnChange: changed,
		OpenSession: func(ctx context.Context) (roles.Session, error) {
			return leaderstore.OpenSession(ctx, n.session(), roleNames())
		},
		CheckInterval: n.check, LeaseDuration: n.lease, RefreshInterval: n.refresh,
		Metrics: metrics.New("bench"), Logger: slog.New(slog.DiscardHandler),
	}), nil
}

// nothing is the work of these leaders.
func nothing(ctx context.Context, _ leaderstore.Fence) error {
	<-ctx.Done()
	return nil
}

func (n *node) session() leaderstore.SessionConfig {
	class, object := nodestore.SessionLock(n.self.Incarnation)
	return leaderstore.SessionConfig{
		URL: n.url, Schema: "public", NodeID: n.self.NodeID, Incarnation: n.self.Incarnation,
		Lease: n.lease, CheckInterval: n.check, LockTimeout: n.lock,
		NodeLockClass: class, NodeLockObject: object,
	}
}

// watch opens the session of a deputy.
func (n *node) watch(ctx context.Context) (roles.Watch, error) {
	opened, err := leaderstore.OpenWatch(ctx, n.session())
	if err != nil {
		return nil, err
	}
	return watch{opened}, nil
}

type watch struct{ *leaderstore.Watch }

func (w watch) AwaitEnd(ctx context.Context, incarnation string) (time.Time, error) {
	class, object := nodestore.SessionLock(incarnation)
	return w.Watch.AwaitEnd(ctx, class, object)
}

// lookAround reads what a node reads; every other node could take over.
func (n *node) lookAround(ctx context.Context) (roles.Cluster, error) {
	leaders, err := leaderstore.New(n.pool).Leaders(ctx)
	if err != nil {
		return roles.Cluster{}, err
	}
	all, err := nodestore.New(n.pool).Recorded(ctx)
	if err != nil {
		return roles.Cluster{}, err
	}
	var candidates []string
	for _, other := range all {
		candidates = append(candidates, other.Incarnation)
	}
	cluster := roles.Cluster{Candidates: map[string][]string{}}
	for _, leader := range leaders {
		if leader.Leads() && !slices.Contains(cluster.Leaders, leader.Incarnation) {
			cluster.Leaders = append(cluster.Leaders, leader.Incarnation)
			cluster.Candidates[leader.Incarnation] = candidates
		}
	}
	return cluster, nil
}
