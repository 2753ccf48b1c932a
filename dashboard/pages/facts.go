package pages

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// The limits of what the pages read.
const (
	historyDepth  = 400
	OverviewCrons = 20
	cronsPerPage  = 50
	overviewJobs  = 12
)

// clusterFacts holds the nodes and leaders, which every page needs.
type clusterFacts struct {
	now     time.Time
	leaders []leaderstore.Leader
	nodes   []nodestore.Node
	applied string
	// differs describes the differences of other configurations, by hash.
	differs map[string]string
	colors  charts.Palette
	// applyPath is the address of the page about a file that all nodes run and that is not
	// in force.
	applyPath string
}

// cluster reads the facts. Their now is the database's clock, to which all other times on
// the page relate.
func (s *Pages) cluster(ctx context.Context) (clusterFacts, error) {
	facts := clusterFacts{now: s.Now(), applyPath: "/nodes"}
	if s.File != nil {
		facts.applyPath = applyPath
	}
	leaders, err := s.Source.Leadership.Leaders(ctx)
	if err != nil {
		return facts, fmt.Errorf("read leaders: %w", err)
	}
	if facts.nodes, err = s.Source.Nodes.List(ctx); err != nil {
		return facts, fmt.Errorf("read nodes: %w", err)
	}
	if s.Applied != nil {
		if facts.applied, err = s.Applied(ctx); err != nil {
			return facts, fmt.Errorf("read the applied configuration: %w", err)
		}
	}
	if facts.differs, err = s.differences(ctx, facts); err != nil {
		return facts, fmt.Errorf("compare configurations: %w", err)
	}
	facts.leaders = s.AllRoles(leaders)
	facts.colors.Paths = map[string]string{}
	for _, n := range facts.nodes {
		facts.colors.Paths[n.NodeID] = nodePath(n.NodeID)
		facts.now = databaseClock(facts.now, n.Now)
	}
	for _, l := range facts.leaders {
		facts.now = databaseClock(facts.now, l.Now)
	}
	return facts, nil
}

// differences describes how the configurations of other nodes differ.
func (s *Pages) differences(ctx context.Context, facts clusterFacts) (map[string]string, error) {
	if s.Differs == nil || facts.applied == "" {
		return nil, nil
	}
	differs := map[string]string{}
	for _, n := range facts.nodes {
		_, known := differs[n.ConfigHash]
		if known || !n.Present() || n.ConfigHash == "" || n.ConfigHash == facts.applied {
			continue
		}
		text, err := s.Differs(ctx, facts.applied, n.ConfigHash)
		if err != nil {
			return nil, err
		}
		differs[n.ConfigHash] = text
	}
	return differs, nil
}

// reverted returns the hash of the earlier configuration that all active nodes run although
// another one is in force; empty if there is none.
func (f clusterFacts) reverted() string {
	shared := nodestore.SharedConfig(f.nodes)
	if f.differs[shared] == "" { // in force, or never applied
		return ""
	}
	return shared
}

// The names of the instants that move every second while the cluster is healthy.
func heartbeatOf(node string) string { return "h:" + node }

func leaseOf(role string) string { return "l:" + role }

// ages returns the ages of these instants in milliseconds, encoded as a query.
func (f clusterFacts) ages() string {
	ages := url.Values{}
	add := func(name string, at time.Time) {
		ages.Set(name, strconv.FormatInt(f.now.UnixMilli()-at.UnixMilli(), 10))
	}
	for _, n := range f.nodes {
		if n.Present() {
			add(heartbeatOf(n.NodeID), n.LastHeartbeatAt)
		}
	}
	for _, l := range f.leaders {
		if l.Leads() {
			add(leaseOf(l.Role), l.LeaseUntil)
		}
	}
	return ages.Encode()
}

// terms returns the term and the node of each leader by its role, encoded as a query.
func (f clusterFacts) terms() string {
	terms := url.Values{}
	for _, l := range f.leaders {
		if l.Leads() {
			terms.Set(l.Role, fmt.Sprintf("%d %s", l.Term, l.NodeID))
		}
	}
	return terms.Encode()
}

// databaseClock returns the clock of the row, or own if the row has none.
func databaseClock(own, row time.Time) time.Time {
	if row.IsZero() {
		return own
	}
	return row
}
