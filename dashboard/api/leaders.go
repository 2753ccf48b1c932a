package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/incident"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// LeaderItem is a role with its leader in a list.
type LeaderItem struct {
	leaderstore.Leader
	aggregator.LeaderRates
	Leads          bool    `json:"leads"`
	LeaseRemaining float64 `json:"lease_remaining_seconds"`
}

// nodeItem is a node with what stopping it would interrupt.
type nodeItem struct {
	nodestore.Node
	handover.Duty
	// Recent is only in the document of a single node.
	Recent *aggregator.Work `json:"recent,omitempty"`
}

const safeToStop = " `safe_to_stop` is true once the node is drained, leads no role and runs no job, so that stopping it interrupts nothing."

func (s *API) listNodes(r *http.Request, q *web.Query) (list web.List[nodeItem], err error) {
	where, sort := cluster.Where(q, nodestore.FilterTable.Keys()), cluster.SortOf(q, nodestore.Orders.Names())
	if err := q.Err(); err != nil {
		return list, err
	}
	nodes, err := s.Source.Nodes.List(r.Context())
	if err != nil {
		return list, err
	}
	items, err := s.nodeItems(r.Context(), nodestore.Orders.Sort(sort, nodestore.FilterTable.Select(where, s.Now(), nodes)))
	return web.ListOf(items, ""), err
}

type transferAsk struct {
	To string `json:"to" body:"required"`
}

const asksTheLeader = " The answer comes at once; `GET /api/v1/leaders` shows a later term when it has happened."

// leaderRoutes returns the routes of the leaders and of the nodes.
func (s *API) leaderRoutes() []route.Route {
	routes := []route.Route{
		get(s, "/api/v1/leaders", route.Operation{
			ID: "listLeaders", Summary: "List the roles with their leaders",
			About: "Returns each role with its leader, its term and the remaining time of its lease. A role without a leader is listed too. The list is complete. `renewals` are those of the role's lease in the last hour, by all its leaders; `heartbeats` are those of the leader's node since its process started. Both are missing until the first are recorded.",
		}, s.listLeaders),
		get(s, "/api/v1/leaders/history", route.Operation{
			ID: "listTenures", Summary: "List tenures, newest first", About: "Returns who led each role, when, why the term ended, and the gap before it.",
			Query: slices.Concat([]route.Parameter{
				route.Text("role", "Only of this role."),
				route.Instant("from", "Only tenures that lasted beyond this instant."), route.Instant("to", "Only tenures that began before this instant, or the gap before them."),
			}, route.Paged),
		}, s.listTenures),
		get(s, "/api/v1/leaders/at", route.Operation{
			ID: "listLeadersAt", Summary: "Who led at an instant",
			About: "Returns for each role who led it at an instant. `state` is `led`, `gap` if nobody led, or `not_recorded`. `from` and `until` are the bounds of the term or of the gap. The list is complete.",
			Query: []route.Parameter{{Name: "at", Kind: "date-time", About: "The instant, not after now.", Required: true}},
		}, s.listLeadersAt),
		get(s, "/api/v1/leaders/{role}/incidents/{term}", route.Operation{
			ID: "getIncident", Summary: "Show what happened when a role changed hands",
			About: "Returns how the term before ended, when that was noticed, the gap, the ticks that were delayed, the jobs that were rescued, what was lost, and the events of those seconds. `term` is the term that began, or `latest`. While the role has no leader, the next term reports on the time since the last one.",
		}, s.getIncident),
		get(s, "/api/v1/nodes", route.Operation{
			ID: "listNodes", Summary: "List the nodes",
			About: "Returns the nodes that match the filter, with their roles, their capabilities, their slots and their last heartbeat." + safeToStop + " The list is complete.",
			Query: []route.Parameter{filterParameter("state:active tag:zone=eu*", nodestore.FilterTable.Keys()), sortParameter(nodestore.Orders)},
		}, s.listNodes),
		get(s, "/api/v1/nodes/{node}", route.Operation{
			ID: "getNode", Summary: "Show a node", About: "Returns a node as in the list." + safeToStop + " `recent` has the attempts a minute and percentiles in seconds of the last quarter of an hour, if the metrics aggregator has recorded them.",
		}, s.getNode),
	}
	if s.RoleOps == nil {
		return routes
	}
	return append(routes, s.handOverRoutes()...)
}

// handOverRoutes returns the routes that ask leaders and nodes to give something up.
func (s *API) handOverRoutes() []route.Route {
	accepted := route.Reply{Status: http.StatusAccepted}
	drill := byAdmin(post(s, "/api/v1/leaders/{role}/drill", route.Operation{
		ID: "drillLeader", Summary: "Hand a role over and measure it", NonTx: true,
		About: "Hands the role over to any other node, waits for the next leader, for 30 seconds at most, and returns how long each part took.",
	}, s.drill))
	drill.Action = "drill"
	return []route.Route{
		drill,
		byAdmin(post(s, "/api/v1/leaders/{role}/step-down", route.Operation{
			Reply: accepted, ID: "stepDownLeader", Summary: "Ask a leader to step down",
			About: "Asks the role's leader to give the role up to any other node." + asksTheLeader,
		}, func(c *call, _ nothing) (cluster.HandOverDocument, error) { return s.handOver(c, "") })),
		byAdmin(post(s, "/api/v1/leaders/{role}/transfer", route.Operation{
			Reply: accepted, ID: "transferLeader", Summary: "Ask a leader to hand over to a node",
			About: "Asks the role's leader to hand the role to the node `to`. `asked` is false if that node leads already." + asksTheLeader,
		}, func(c *call, body transferAsk) (done cluster.HandOverDocument, err error) {
			if body.To == "" {
				return done, cluster.ErrNoTarget
			}
			return s.handOver(c, body.To)
		})),
		byAdmin(post(s, "/api/v1/nodes/{node}/drain", route.Operation{
			Reply: accepted, ID: "drainNode", Summary: "Drain a node",
			About: "Closes the node to new jobs and asks it to hand its roles over. Running jobs continue. The answer comes at once.",
		}, s.drain(true))),
		byAdmin(post(s, "/api/v1/nodes/{node}/undrain", route.Operation{
			Reply: accepted, ID: "undrainNode", Summary: "Undrain a node", About: "Opens a drained node to jobs and roles again.",
		}, s.drain(false))),
	}
}

func (s *API) listLeaders(r *http.Request, _ *web.Query) (items web.List[LeaderItem], err error) {
	leaders, err := s.Source.Leadership.Leaders(r.Context())
	if err != nil {
		return items, err
	}
	rates, err := s.Rates.Get(r.Context())
	for _, l := range s.AllRoles(leaders) {
		item := LeaderItem{Leader: l, LeaderRates: rates.Of(l.Role, l.NodeID), Leads: l.Leads()}
		if item.Leads {
			item.LeaseRemaining = l.LeaseUntil.Sub(l.Now).Seconds()
		}
		items.Items = append(items.Items, item)
	}
	return web.ListOf(items.Items, ""), err
}

// nodeItems adds to nodes what stopping them would interrupt.
func (s *API) nodeItems(ctx context.Context, nodes []nodestore.Node) ([]nodeItem, error) {
	leaders, err := s.Source.Leadership.Leaders(ctx)
	if err != nil {
		return nil, err
	}
	duties, err := handover.Duties(ctx, s.Source.Jobs, nodes, leaders)
	items := make([]nodeItem, len(nodes))
	for i, n := range nodes {
		items[i] = nodeItem{Node: n, Duty: duties[n.NodeID]}
	}
	return items, err
}

func (s *API) getNode(r *http.Request, _ *web.Query) (nodeItem, error) {
	nodes, err := s.Source.Nodes.List(r.Context())
	if err != nil {
		return nodeItem{}, err
	}
	nodes = slices.DeleteFunc(nodes, func(n nodestore.Node) bool { return n.NodeID != r.PathValue("node") })
	if len(nodes) == 0 {
		return nodeItem{}, cluster.ErrNoNode
	}
	items, err := s.nodeItems(r.Context(), nodes)
	if err != nil {
		return nodeItem{}, err
	}
	items[0].Recent, err = s.Source.History.WorkOf(r.Context(), "node", nodes[0].NodeID, nodes[0].Now, nodes[0].StartedAt)
	return items[0], err
}

// listTenures lists the tenures. The cursor names the beginning and the role of one of
// them.
func (s *API) listTenures(r *http.Request, q *web.Query) (page web.List[leaderstore.Tenure], err error) {
	var after leaderstore.Cursor
	if at, role, _ := strings.Cut(q.Values.Get("after"), " "); at != "" {
		after.Role = role
		if after.AcquiredAt, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return page, web.BadRequest(web.ErrForgedCursor)
		}
	}
	times, err := window.Parse(q.Values, s.Now(), 0)
	if err != nil {
		return page, web.BadRequest(err)
	}
	tenures, err := s.Source.Leadership.Tenures(r.Context(), leaderstore.TenureFilter{Role: q.Values.Get("role"), From: times.From, To: times.To, After: after, Limit: q.Limit()})
	return pageOf(q, tenures, len(tenures) == q.Limit(), "after", func(last leaderstore.Tenure) string {
		return last.AcquiredAt.UTC().Format(time.RFC3339Nano) + " " + last.Role
	}), err
}

// listLeadersAt lists who led at an instant.
func (s *API) listLeadersAt(r *http.Request, q *web.Query) (items web.List[leaderstore.LedAt], err error) {
	at := q.Time("at")
	if err := cluster.CheckPast("at", at, s.Now()); err != nil {
		return items, err
	}
	roles, err := s.Source.Leadership.LedAt(r.Context(), at)
	return web.ListOf(roles, ""), err
}

func (s *API) getIncident(r *http.Request, _ *web.Query) (incident.Incident, error) {
	term, err := cluster.ParseTerm(r.PathValue("term"))
	if err != nil {
		return incident.Incident{}, err
	}
	return s.Incidents.Get(r.Context(), r.PathValue("role"), term)
}

// handOver requests that a leader steps down or, with a target, transfers its role.
func (s *API) handOver(c *call, to string) (cluster.HandOverDocument, error) {
	leader, asked, err := s.RoleOps.HandOver(c.Context(), c.PathValue("role"), to, c.by)
	return cluster.HandOverDocument{Role: leader.Role, Term: leader.Term, LeaderID: leader.NodeID, To: to, Asked: asked}, err
}

// drillTimeout is how long a drill waits for the successor.
const drillTimeout = 30 * time.Second

// drill returns when the role has a new leader.
func (s *API) drill(c *call, _ nothing) (handover.DrillResult, error) {
	done, err := s.RoleOps.Drill(c.Context(), handover.Params{Role: c.PathValue("role"), By: c.by, Within: drillTimeout})
	if err == nil {
		auth.NoteAction(c.Context(), fmt.Sprintf("from %s to %s, %v ms", done.From, done.To, done.TookMS))
	}
	return done, err
}

func (s *API) drain(drain bool) func(*call, nothing) (cluster.DrainDocument, error) {
	return func(c *call, _ nothing) (cluster.DrainDocument, error) {
		return s.Drain(c.Context(), c.PathValue("node"), c.by, drain)
	}
}
