package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
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

// nodeSearchTime is how long each of these lists is searched for: no index knows the node of a
// job, and the list of jobs searches on.
const nodeSearchTime = 20 * time.Millisecond

// endedStates are the states of jobs whose last attempt has ended.
var endedStates = []string{"completed", "cancelled", "discarded", "retryable"}

// nodeActivity is how many entries of the activity the page of a node lists.
const nodeActivity = 10

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
	// Recent is what the node did in the last minutes, of which RecentAbout is the time; empty if
	// it is not known.
	Recent      []fact
	RecentAbout string
	// Load shows the slots in use and the jobs worked over Time.
	Load charts.Drawing
	Time timeControl
	// Activity are the newest events and actions about the node, AllActivity leads to all.
	Activity    activityTable
	AllActivity string
}

// nodeRole is a role of a node, with the address of its leaders.
type nodeRole struct {
	Title, Path string
	Leads       bool
}

// node returns a node by its id, or [cluster.ErrNoNode].
func (f clusterFacts) node(id string) (nodestore.Node, error) {
	i := slices.IndexFunc(f.nodes, func(n nodestore.Node) bool { return n.NodeID == id })
	if i < 0 {
		return nodestore.Node{}, cluster.ErrNoNode
	}
	return f.nodes[i], nil
}

func (s *Pages) loadNode(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	id := req.Values.Get("node")
	node, err := facts.node(id)
	if err != nil {
		return nil, err
	}
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
	if err := s.addNodeLoad(ctx, req, facts, node, b); err != nil {
		return nil, err
	}
	if err := s.addNodeActivity(ctx, req, facts, b); err != nil {
		return nil, err
	}
	return b, s.addNodeJobs(ctx, facts, b)
}

// addNodeLoad draws the slots of the node that were in use in the window of the page, and the jobs
// that it worked.
func (s *Pages) addNodeLoad(ctx context.Context, req *request, facts clusterFacts, node nodestore.Node, b *nodeBody) error {
	shown, err := s.window(req, facts.now, time.Hour)
	if err != nil {
		return err
	}
	page := web.Encode(append(shown.Pairs(), "node", node.NodeID, "slots", strconv.Itoa(node.Slots))...)
	b.Load, err = s.chartPages.Get(page, facts.now, func() (charts.Drawing, error) {
		return charts.DrawNodeLoad(ctx, s.Source.History, node.NodeID, node.Slots, shown, facts.now)
	})
	b.Time = s.timeControl(shown, facts.now, nodePath(node.NodeID), "#load", charts.MetricSpans, nil)
	if err != nil {
		return err
	}
	work, err := s.Source.History.WorkOf(ctx, "node", node.NodeID, facts.now, node.StartedAt)
	if err != nil {
		return fmt.Errorf("read the work of %s: %w", node.NodeID, err)
	}
	b.Recent, b.RecentAbout = recentFacts(work)
	return nil
}

// addNodeActivity reads the newest entries of the activity about the node.
func (s *Pages) addNodeActivity(ctx context.Context, req *request, facts clusterFacts, b *nodeBody) error {
	where := search.New(search.Is("node", b.Row.Node.ID))
	q := web.Query{Path: req.Path, Values: url.Values{"filter": {where.String()}, "limit": {strconv.Itoa(nodeActivity)}}}
	query, err := cluster.ActivityQuery(&q, req.scope)
	if err != nil {
		return err
	}
	page, err := s.Source.Activity.Find(ctx, query)
	if err != nil {
		return fmt.Errorf("read the activity of %s: %w", b.Row.Node.ID, err)
	}
	for i := range page.Entries {
		b.Activity.Rows = append(b.Activity.Rows, newActivityRow(facts, &page.Entries[i]))
	}
	b.AllActivity = activityPath(where)
	return nil
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
		if leads || n.Present() && slices.Contains(n.Roles, l.Role) {
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
	filter := jobstore.Filter{Args: jobstore.ShortArgs, Limit: nodeJobs, Within: nodeSearchTime}
	found, err := s.Source.Jobs.Search(ctx, filter.Narrow(search.New(terms...)))
	if err != nil {
		return found, fmt.Errorf("read the jobs of %s: %w", id, err)
	}
	return found, nil
}
