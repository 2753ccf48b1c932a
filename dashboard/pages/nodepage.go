package pages

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	search "github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// nodeJobs is how many running and how many ended jobs the page of a node lists.
const nodeJobs = 10

// endedStates are the states of jobs whose last attempt has ended.
var endedStates = []string{"completed", "cancelled", "discarded", "retryable"}

type nodeBody struct {
	base
	Notice string
	Row    nodeRow
	// Roles are the roles that the node leads or can lead, the former first.
	Roles []nodeRole
	// Running and Ended are jobs whose last attempt is on the node. More reports that it runs
	// other jobs too.
	Running, Ended []jobRow
	More           bool
	// AllRunning and AllJobs lead to the lists of them.
	AllRunning, AllJobs string
}

// nodeRole is a role of a node, with the address of its leaders.
type nodeRole struct {
	Title, Path string
	Leads       bool
}

func (s *Pages) loadNode(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	id := req.Values.Get("node")
	i := slices.IndexFunc(facts.nodes, func(n nodestore.Node) bool { return n.NodeID == id })
	if i < 0 {
		return nil, cluster.ErrNoNode
	}
	node := facts.nodes[i]
	rows := nodeRows(facts, s.Self)
	rows = slices.DeleteFunc(rows, func(r nodeRow) bool { return r.Node.ID != id })
	if err := s.addDuties(ctx, facts, rows); err != nil {
		return nil, err
	}
	b := &nodeBody{base: base{name: "Node " + id, beat: s.fullPulse(facts)}, Notice: drainNotice(req), Row: rows[0], Roles: nodeRoles(node, facts.leaders)}
	b.Row.Facts = nodeFacts(node)
	if s.RoleOps != nil && req.may(route.Admin) && node.Present() {
		b.Row.Act = drainAct(node)
	}
	return b, s.addNodeJobs(ctx, facts, b)
}

// addDuties reads what stopping the nodes of the rows would interrupt.
func (s *Pages) addDuties(ctx context.Context, facts clusterFacts, rows []nodeRow) error {
	duties, err := handover.Duties(ctx, s.Source.Jobs, facts.nodes, facts.leaders)
	if err != nil {
		return fmt.Errorf("read the duties of nodes: %w", err)
	}
	for i := range rows {
		rows[i].Duty = duties[rows[i].Node.ID]
	}
	return nil
}

// nodeRoles returns the roles with leaders: those that the node leads, and those that it can
// lead.
func nodeRoles(n nodestore.Node, leaders []leaderstore.Leader) []nodeRole {
	var roles []nodeRole
	for _, l := range leaders {
		leads := l.Leads() && l.Incarnation == n.Incarnation
		if leads || slices.Contains(n.Roles, l.Role) {
			roles = append(roles, nodeRole{roleTitle(l.Role), "/leaders?" + web.Encode("role", l.Role), leads})
		}
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(roles, func(a, b nodeRole) int { return cmp.Compare(rank[a.Leads], rank[b.Leads]) })
	return roles
}

// nodeJobsPath returns the address of the list of a node's jobs.
func nodeJobsPath(id, state string) string {
	return "/jobs?" + web.Encode("state", state, "filter", search.Is("node", id).String())
}

// addNodeJobs reads the newest running and ended jobs of the node.
func (s *Pages) addNodeJobs(ctx context.Context, facts clusterFacts, b *nodeBody) error {
	id := b.Row.Node.ID
	running, err := s.nodeJobs(ctx, id, "running")
	if err != nil {
		return err
	}
	ended, err := s.nodeJobs(ctx, id, endedStates...)
	if err != nil {
		return err
	}
	b.Running, b.More, b.Ended = jobRows(facts.now, running.Jobs, facts.colors), running.Next != 0, jobRows(facts.now, ended.Jobs, facts.colors)
	b.AllRunning, b.AllJobs = nodeJobsPath(id, "running"), nodeJobsPath(id, "")
	return nil
}

// nodeJobs reads the newest jobs of a node in any of these states.
func (s *Pages) nodeJobs(ctx context.Context, id string, states ...string) (jobstore.Found, error) {
	terms := []search.Term{search.Is("node", id)}
	for _, state := range states {
		terms = append(terms, search.Is("state", state))
	}
	filter := jobstore.Filter{Args: jobstore.ShortArgs, Limit: nodeJobs}
	found, err := s.Source.Jobs.Search(ctx, filter.Narrow(search.New(terms...)))
	if err != nil {
		return found, fmt.Errorf("read the jobs of %s: %w", id, err)
	}
	return found, nil
}
