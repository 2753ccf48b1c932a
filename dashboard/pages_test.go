package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/api"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/pages"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestPagesShowClusterState(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	tests := map[string][]string{
		"/": {
			"No node leads as metrics aggregator", "The totals of the cluster are not updated", // health
			"12,345 completed", "3 of 100 slots busy", // numbers
			"term 7", "this node", "A running node becomes its leader", // leaders
			"crashed", "8.0 ms", // history
			"at 02:00 every day", "Last 2 ticks: 1 fired (run to be retried), 1 skipped: blocked by an earlier run", "in 14h 00m", "4.2 ms", // crons
			"#42", "retryable", "1/5", // jobs
			"Next ticks", `id="coming"`, "The alert no_scheduler_leader fires.", "of 2, 0 pending", // what is due, and alerts
		},
		"/jobs/42":            {"exit 1", "812 ms", "disk full", "&#34;keep&#34;: 14", "dumping", `href="/crons/backup"`},
		"/crons/backup":       {"job 41 is still running", `href="/jobs/42"`, "2026-11-20 02:00:00 UTC", "term 6"},
		"/jobs?state=running": {"No job matches the filter.", `running <span class="tab-count">`},
		"/crons?q=nothing":    {"No cron matches the filter.", `href="/crons?is=paused&amp;q=nothing"`},
		"/leaders?role=log_compactor": {
			"leading", `aria-current="true">Log compactor`,
		},
		"/leaders": {
			`href="/leaders/scheduler/transfer"`, "8.0 ms without a leader before term 7 of node-1 (crashed)", "1 change of leader in this time",
			`<circle cx="97.667%"`, `<rect class="gap-area" x="`, "Leader elected", `href="/leaders?span=30d"`, "node-2, term 6, for 3m 59s",
		},
		"/nodes": {"3<small>/100</small>", "none draining", "Stands for", `href="/nodes/node-2/drain"`, "Log compactor"},
		"/settings": {
			`<th scope="row">leader_election.lease_duration</th><td><code>&#34;3s&#34;</code>`, "[&#34;worker&#34;, &#34;scheduler&#34;]",
			"2 entries", `<th scope="row">pulse.schedule</th>`,
		},
		"/leaders/scheduler/step-down":          {"Have another node lead as scheduler?", "node-1 leads in term 7.", `action="/leaders/scheduler/step-down"`},
		"/leaders/scheduler/transfer":           {"<option>node-2</option>", `action="/leaders/scheduler/transfer"`},
		"/leaders/metrics_aggregator/step-down": {"It has no leader now."},
		"/nodes/node-1/drain":                   {"Drain node-1?", "3 running jobs continue.", `action="/nodes/node-1/drain"`},
		"/nodes/node-2/undrain":                 {"Undrain node-2?"},
	}
	for path, wants := range tests {
		html := get(t, h, path).Body.String()
		for _, want := range wants {
			if !strings.Contains(html, want) {
				t.Errorf("%s does not say %q", path, want)
			}
		}
	}
}

func TestEmptyClusterShowsInstructions(t *testing.T) {
	t.Parallel()
	c := &dashboardtest.Cluster{}
	html := get(t, handlerOf(c), "/").Body.String()
	for _, want := range []string{"No node is active", "forge serve", "forge dev --nodes 3", "[[crons]]", "forge job enqueue", "Nobody has led yet"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestDriftIsMarked(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Nodes[1].ConfigHash = "bbbbbbbbbb"
	c.Nodes[0].StartedAt = dashboardtest.Epoch
	html := get(t, handlerOf(c), "/").Body.String()
	if !strings.Contains(html, "1 node runs another configuration") || strings.Count(html, "drifts") != 1 {
		t.Error("drift is not marked once")
	}
}

// Every node's page shows why a node does not run its file.
func TestRefusedFilesAreShown(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Nodes[0].ConfigError = "2 errors, the first: <forge.toml:3:1>"
	c.Nodes[1].ConfigRestart = []string{"http.listen", "node.id"}
	html := get(t, handlerOf(c), "/").Body.String()
	for _, want := range []string{
		c.Nodes[0].NodeID + " has refused its edited file", "the first: &lt;forge.toml:3:1&gt;",
		c.Nodes[1].NodeID + " needs a restart for http.listen, node.id", "Waits for a restart: http.listen, node.id",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestPageErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		path   string
		alter  func(*dashboardtest.Cluster)
		status int
	}{
		{path: "/jobs/999", status: 404},
		{path: "/jobs/abc", status: 404},
		{path: "/leaders/king/step-down", status: 404},
		{path: "/nodes/node-9/drain", status: 404},
		{path: "/nodes/node-9", status: 404},
		{path: "/api/v1/nodes/node-9", status: 404},
		{path: "/crons/none", status: 404},
		{path: "/nowhere", status: 404},
		{path: "/jobs?state=sleeping", status: 400},
		{path: "/jobs?before=x", status: 400},
		{path: "/crons/backup?before=yesterday", status: 400},
		{path: "/", alter: func(c *dashboardtest.Cluster) { c.Err = errors.New("dial db.internal: refused") }, status: 503},
		{path: "/jobs/42", alter: func(c *dashboardtest.Cluster) { c.Err = errors.New("dial db.internal: refused") }, status: 503},
		{path: "/api/v1/jobs", alter: func(c *dashboardtest.Cluster) { c.Err = errors.New("dial db.internal: refused") }, status: 503},
		{path: "/api/v1/jobs?limit=9999", status: 400},
		{path: "/api/v1/jobs/999", status: 404},
		{path: "/api/v1/jobs/x/logs", status: 404},
		{path: "/api/v1/crons/none/ticks", status: 404},
		{path: "/api/v1/events?before=-1", status: 400},
		{path: "/events?page=none", status: 404},
	}
	for _, test := range tests {
		c := dashboardtest.New()
		if test.alter != nil {
			test.alter(c)
		}
		w := get(t, handlerOf(c), test.path)
		if w.Code != test.status {
			t.Errorf("%s: status %d, want %d", test.path, w.Code, test.status)
		}
		if strings.Contains(w.Body.String(), "db.internal") {
			t.Errorf("%s tells the inside of an error", test.path)
		}
		want := "text/html; charset=utf-8"
		if web.ForPrograms(test.path) {
			want = "application/problem+json"
		}
		if got := w.Header().Get("Content-Type"); got != want {
			t.Errorf("%s: content type %q, want %q", test.path, got, want)
		}
	}
}

// The page contains the chosen theme, so that it is painted in the right colours from the
// start.
func TestThemeFollowsCookie(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for cookie, want := range map[string]string{
		"forge-theme=dark": `<html lang="en" data-theme="dark">`, "forge-theme=light": `<html lang="en" data-theme="light">`,
		"": `<html lang="en">`, "forge-theme=blue": `<html lang="en">`,
	} {
		for _, path := range []string{"/", "/nowhere"} {
			if body := withCookie(t, h, cookie, path).Body.String(); !strings.Contains(body, want) {
				t.Errorf("%s with %q: no %s", path, cookie, want)
			}
		}
	}
}

func TestJobsArePaged(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Jobs = nil
	for id := int64(web.DefaultLimit + 10); id > 0; id-- {
		c.Jobs = append(c.Jobs, jobstore.Job{ID: id, Kind: "dump", State: "completed"})
	}
	h := handlerOf(c)
	first := decode[web.List[jobstore.Job]](t, get(t, h, "/api/v1/jobs?kind=dump"))
	if len(first.Items) != web.DefaultLimit || !strings.HasPrefix(first.Next, "/api/v1/jobs?cursor=") {
		t.Fatalf("%d jobs, next %q", len(first.Items), first.Next)
	}
	second := decode[web.List[jobstore.Job]](t, get(t, h, first.Next))
	if len(second.Items) != 10 || second.Next != "" {
		t.Errorf("%d jobs, next %q", len(second.Items), second.Next)
	}
	if html := get(t, h, "/jobs?kind=dump").Body.String(); !strings.Contains(html, `href="/jobs?before=11&amp;kind=dump"`) || !strings.Contains(html, "sse-connect") {
		t.Error("the first page lacks the way to older jobs, or its stream")
	}
	if html := get(t, h, "/jobs?before=11&kind=dump").Body.String(); !strings.Contains(html, `sse-connect="/events?page=jobs&amp;before=11&amp;kind=dump"`) || !strings.Contains(html, ">Newest<") || !strings.Contains(html, "#10<") {
		t.Error("an older page lacks its stream, its jobs, or the way back")
	}
}

func TestAPIListings(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	leaders := decode[web.List[api.LeaderItem]](t, get(t, h, "/api/v1/leaders"))
	if len(leaders.Items) != 3 || leaders.Items[0].Role != "scheduler" || !leaders.Items[0].Leads || leaders.Items[0].LeaseRemaining != 3 || leaders.Items[1].Leads {
		t.Errorf("leaders %+v", leaders)
	}
	history := decode[web.List[map[string]any]](t, get(t, h, "/api/v1/leaders/history?role=scheduler"))
	if len(history.Items) != 2 || history.Items[0]["gap_ms"] != 8.0 || history.Items[1]["gap_ms"] != nil {
		t.Errorf("history %+v", history)
	}
	crons := decode[web.List[api.CronItem]](t, get(t, h, "/api/v1/crons"))
	if len(crons.Items) != 1 || crons.Items[0].Description != "at 02:00 every day" {
		t.Errorf("crons %+v", crons)
	}
	compaction := decode[compactor.Status](t, get(t, h, "/api/v1/compaction?limit=1"))
	if len(compaction.Passes) != 1 || compaction.Passes[0].Chunks != 9 || len(compaction.Tables) != 1 {
		t.Errorf("compaction %+v", compaction)
	}
	logs := decode[web.List[jobstore.LogChunk]](t, get(t, h, "/api/v1/jobs/42/logs"))
	if len(logs.Items) != 1 || !strings.HasPrefix(logs.Next, "/api/v1/jobs/42/logs?cursor=") {
		t.Errorf("logs %+v", logs)
	}
	if end := get(t, h, logs.Next); !strings.Contains(end.Body.String(), `"items":[]`) {
		t.Errorf("the end of the logs: %s", end.Body)
	}
	events := decode[web.List[map[string]any]](t, get(t, h, "/api/v1/events?limit=1"))
	if len(events.Items) != 1 || !strings.HasPrefix(events.Next, "/api/v1/events?cursor=") {
		t.Errorf("events %+v", events)
	}
}

func TestWithoutPages(t *testing.T) {
	t.Parallel()
	opts := optionsOf(dashboardtest.New())
	opts.NoPages = true
	h := New(opts)
	for path, status := range map[string]int{"/": 404, "/jobs": 404, "/events?page=overview": 404, "/healthz": 200, "/api/v1/jobs": 200, "/leader/scheduler": 200, "/metrics": 200} {
		w := get(t, h, path)
		if w.Code != status {
			t.Errorf("%s: status %d, want %d", path, w.Code, status)
		}
		if status == http.StatusNotFound && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: content type %q", path, w.Header().Get("Content-Type"))
		}
	}
}

func TestOneCronMoreThanTheOverviewShows(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	for i := range pages.OverviewCrons {
		one := c.Crons[0]
		one.Name = fmt.Sprintf("backup-%d", i)
		c.Crons = append(c.Crons, one)
	}
	if page := get(t, handlerOf(c), "/").Body.String(); !strings.Contains(page, "1 more than here") {
		t.Error("the overview does not count the cron that it leaves out")
	}
}

// A page reports an action once: not again when it is reloaded, but again after the next
// action.
func TestNoticeIsShownOnce(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	jar := map[string]string{}
	send := func(method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8080"+path, nil)
		for name, value := range jar {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		if method == http.MethodPost {
			r.Header.Set("Content-Type", formType)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		for _, c := range w.Result().Cookies() {
			if jar[c.Name] = c.Value; c.MaxAge < 0 {
				delete(jar, c.Name)
			}
		}
		return w
	}
	const notice = `class="alert said"`
	for range 2 {
		w := send(http.MethodPost, "/crons/backup/pause")
		page := w.Header().Get("Location")
		if w.Code != http.StatusSeeOther || !strings.Contains(send(http.MethodGet, page).Body.String(), notice) {
			t.Fatalf("%d: %s does not report the action", w.Code, page)
		}
		send(http.MethodGet, "/jobs")
		again := send(http.MethodGet, page)
		if again.Code != http.StatusOK || strings.Contains(again.Body.String(), notice) || strings.Contains(again.Body.String(), "did=pause") {
			t.Errorf("%d: %s reports the action again when it is reloaded", again.Code, page)
		}
	}
}

// Pages link to pages, and to the API's documentation.
func TestFooterLinksToPages(t *testing.T) {
	t.Parallel()
	page := get(t, handlerOf(dashboardtest.New()), "/").Body.String()
	_, foot, _ := strings.Cut(page, "<footer")
	foot, _, _ = strings.Cut(foot, "</footer>")
	if !strings.Contains(foot, `href="/api/docs"`) || strings.Contains(foot, `href="/api/v1`) || strings.Contains(foot, `href="/cluster`) || strings.Contains(foot, `href="/metrics`) {
		t.Errorf("the footer is %s", foot)
	}
}
