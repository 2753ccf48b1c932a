package dashboard

import (
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// A node's page shows its jobs and roles, and links to the lists of them.
func TestNodePage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Jobs = append([]jobstore.Job{
		{ID: 44, Kind: "mine", State: "running", NodeID: "node-1", AttemptedAt: dashboardtest.Epoch},
		{ID: 43, Kind: "other", State: "running", NodeID: "node-2", AttemptedAt: dashboardtest.Epoch},
	}, c.Jobs...)
	c.Nodes[0].ConfigRestart = []string{"http.listen"}
	c.Nodes[1].ConfigHash = "bbbbbbbbbb"
	c.Nodes[0].StartedAt = c.Nodes[1].StartedAt.Add(time.Minute) // its configuration counts as the one in force
	h := handlerOf(c)
	page := get(t, h, "/nodes/node-1").Body.String()
	for want, there := range map[string]bool{
		`href="/jobs?filter=node%3Anode-1"`: true, `href="/jobs?filter=node%3Anode-1&amp;state=running"`: true, `href="/nodes/node-1/drain"`: true,
		`href="/leaders?role=scheduler">Scheduler: leads`: true, "Log compactor: standby": true, "3<small>/50</small>": true,
		`href="/jobs/44"`: true, `href="/jobs/43"`: false, "Waits for a restart: http.listen": true, "alpha": true, "afe to stop": false, "differs from": false,
	} {
		if strings.Contains(page, want) != there {
			t.Errorf("%q is %v", want, !there)
		}
	}
	page = get(t, h, "/nodes/node-2").Body.String()
	for _, want := range []string{`href="/jobs/42"`, "disk full", `href="/jobs/43"`, "differs from the one in force"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of node-2 does not say %q", want)
		}
	}
	for _, path := range []string{"/", "/nodes"} {
		if page := get(t, h, path).Body.String(); !strings.Contains(page, `href="/nodes/node-2"`) {
			t.Errorf("%s does not lead to the node", path)
		}
	}
}

// A node's page shows its load over the selected time, and what happened to it.
func TestLoadOfNode(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Windows = nil
	for minute := range 120 {
		c.Windows = append(c.Windows,
			dashboardtest.Window(metrics.NodesName, minute, 2, "state", "active"),
			dashboardtest.Window(metrics.NodeUsedName, minute, 7, "node_id", "node-1"),
			dashboardtest.Window(metrics.NodeUsedName, minute, 30, "node_id", "node-2"))
		at := dashboardtest.Epoch.Add(-time.Duration(minute) * time.Minute)
		c.Shares = append(c.Shares, aggregator.SharePoint{At: at, Share: aggregator.Share{Key: "node-1", Attempts: 12, Failures: 3}},
			aggregator.SharePoint{At: at, Share: aggregator.Share{Key: aggregator.Other, Attempts: 500, Failures: 400}})
	}
	c.Events = append(c.Events, eventstore.Event{ID: 100, At: dashboardtest.Epoch, Type: eventstore.LeaderElected, NodeID: "node-1", Role: "scheduler", Term: 7})
	c.Audit = append(c.Audit, access.AuditEntry{ID: 100, At: dashboardtest.Epoch, Action: "node.drain", Object: "node-2"})
	h := handlerOf(c)
	page := get(t, h, "/nodes/node-1").Body.String()
	for _, want := range []string{
		"Slots in use: in use 7 now, at most 7.", "the node has 50", "Jobs a minute: finished 12 now, at most 12; failed 3 now, at most 3.",
		"In the 15 minutes until 2026-11-20 12:00:00", "<dd>500 ms / 500 ms / 1m 30s</dd>", `href="/nodes/node-1?span=6h#load"`, `action="/nodes/node-1#load"`,
		`href="/activity?filter=node%3Anode-1"`, `id="events-100"`, `href="/leaders/scheduler/terms/7"`, `<a href="/nodes/node-2">node-2</a>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	query := c.Asks[len(c.Asks)-1]
	if got := query.Where.String(); got != "node:node-1" || query.Limit != 10 {
		t.Errorf("read the activity %q, at most %d", got, query.Limit)
	}
	if page := get(t, h, "/nodes/node-1?from=2000-01-01T00:00&to=2000-01-02T00:00").Body.String(); !strings.Contains(page, "No data for this time.") {
		t.Error("a time before the records has data")
	}
	if got := get(t, h, "/nodes/node-1?span=never"); got.Code != http.StatusBadRequest {
		t.Errorf("an unreadable time: %d", got.Code)
	}
}

// The document of one node has what it did in the last minutes.
func TestWorkOfNode(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	type document struct{ Recent *aggregator.Work }
	if got := decode[document](t, get(t, h, "/api/v1/nodes/node-1")); got.Recent == nil || got.Recent.Started != 12.25 || *got.Recent.Wait.P99 != 90 {
		t.Errorf("%+v", got.Recent)
	}
	if got := decode[web.List[document]](t, get(t, h, "/api/v1/nodes")); len(got.Items) != 2 || got.Items[0].Recent != nil {
		t.Errorf("in the list: %+v", got)
	}
}

// Pages that name a node link to its page, unless the node is not in the cluster.
func TestNodesAreLinked(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Leaders[0].NodeID = "a-program"
	c.Events = append(c.Events, eventstore.Event{ID: 100, At: dashboardtest.Epoch, Type: eventstore.NodeDead, NodeID: "node-2"})
	h := handlerOf(c)
	for _, path := range []string{
		"/", "/nodes", "/leaders", "/jobs", "/jobs/42", "/crons/backup", "/activity", "/storage", "/dead/" + dashboardtest.DeadGroup,
		"/leaders/scheduler/terms/7", "/search?q=node",
	} {
		page := get(t, h, path).Body.String()
		if !strings.Contains(page, `href="/nodes/node-`) {
			t.Errorf("%s links no node", path)
		}
		if strings.Contains(page, `href="/nodes/a-program"`) {
			t.Errorf("%s links to the page of a node that does not exist", path)
		}
	}
	if page := get(t, h, "/leaders").Body.String(); !strings.Contains(page, "</i>a-program</span>") {
		t.Error("the leader that is not a node is not named")
	}
	if got := get(t, h, "/nodes/a-program"); got.Code != http.StatusNotFound || !strings.Contains(got.Body.String(), "There is no such node.") {
		t.Errorf("the page of an unknown node: %d", got.Code)
	}
}

// A node is found by its id whatever characters it has, and its jobs by a filter that reads
// back as the id.
func TestNodeWithOddID(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	const id = `a/b "c*d\?&#%`
	c.Nodes[0].NodeID = id
	h := handlerOf(c)
	w := get(t, h, "/nodes/"+url.PathEscape(id))
	query := url.Values{"filter": {`node:"a/b \"c*d\\?&#%"`}}.Encode()
	if page := html.UnescapeString(w.Body.String()); w.Code != http.StatusOK || !strings.Contains(page, `href="/jobs?`+query+`"`) {
		t.Fatalf("%d, want a link to %s", w.Code, query)
	}
	if got := get(t, h, "/jobs?"+query); got.Code != http.StatusOK {
		t.Errorf("the list of its jobs: %d", got.Code)
	}
	if got := get(t, h, "/api/v1/nodes/"+url.PathEscape(id)); got.Code != http.StatusOK {
		t.Errorf("the API: %d", got.Code)
	}
}

// Pages and the API tell when a drained node may be stopped.
func TestSafeToStop(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	check := func(state string, running int, jobs []jobstore.Job, wantSafe bool, wantNote string) {
		t.Helper()
		c.Change(func(c *dashboardtest.Cluster) {
			c.Nodes[1].State, c.Nodes[1].Running, c.Jobs = state, running, jobs
		})
		type item struct {
			nodestore.Node
			handover.Duty
		}
		one := decode[item](t, get(t, h, "/api/v1/nodes/node-2"))
		all := decode[web.List[item]](t, get(t, h, "/api/v1/nodes"))
		if one.SafeToStop != wantSafe || one.StopNote != wantNote || all.Items[1].StopNote != wantNote || all.Items[1].SafeToStop != wantSafe {
			t.Errorf("%s with %d running: %+v", state, running, one.Duty)
		}
		for _, path := range []string{"/nodes", "/nodes/node-2"} {
			page := get(t, h, path).Body.String()
			if strings.Contains(page, "Safe to stop now.") != wantSafe || state == nodestore.Draining && !strings.Contains(page, wantNote) {
				t.Errorf("%s while %s with %d running", path, state, running)
			}
		}
	}
	check(nodestore.Active, 0, nil, false, "It is not drained.")
	check(nodestore.Draining, 2, nil, false, "2 jobs run, and it leads log_compactor.")
	check(nodestore.Draining, 0, []jobstore.Job{{ID: 1, State: "running", NodeID: "node-2"}}, false, "1 job runs, and it leads log_compactor.")
	check(nodestore.Draining, 0, nil, false, "It leads log_compactor.")
	c.Leaders = slices.DeleteFunc(c.Leaders, func(l leaderstore.Leader) bool { return l.Role == "log_compactor" })
	check(nodestore.Draining, 0, nil, true, "It leads no role and runs no job.")
	check(nodestore.Dead, 0, nil, false, "It does not run.")
}
