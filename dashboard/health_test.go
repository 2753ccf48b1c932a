package dashboard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/pages"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// The overview shows crons whose newest tick was skipped because of an earlier run,
// hazards, and a node that is not ready.
func TestOverviewShowsHazards(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	led := c.Leaders[0]
	led.Role = "metrics_aggregator"
	c.Leaders = append(c.Leaders, led)
	c.Hazards = []hazards.Hazard{
		{Kind: hazards.PausedQueue, Text: "queue mail is paused for 72h0m0s", Remedy: "forge queue resume mail"},
		{Kind: hazards.OldSnapshot, Text: "process 42 is open", Remedy: "end it"},
	}
	page := get(t, handlerOf(c), "/").Body.String()
	for _, want := range []string{`<a href="/queues">Queue mail is paused for 72h0m0s</a>`, "Remedy: forge queue resume mail.", "Process 42 is open."} {
		if !strings.Contains(page, want) {
			t.Errorf("the overview does not say %q", want)
		}
	}
	opts := optionsOf(c)
	opts.Cluster.Ready = func(context.Context) error {
		return cluster.UnreadyError{Public: "x", Err: errors.New("the disk is full")}
	}
	page = get(t, New(opts), "/").Body.String()
	for _, want := range []string{"Node node-1 is not ready: the disk is full"} {
		if !strings.Contains(page, want) {
			t.Errorf("the overview of a node that is not ready does not say %q", want)
		}
	}
}

// The pages link to the job that blocks a cron.
func TestPagesNameWhatBlocksCrons(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Crons[0].Blocked = cronstore.Blocked{By: 42, Since: dashboardtest.Epoch.Add(-time.Minute)}
	c.Ticks[c.Crons[0].Name] = []cronstore.Tick{{
		Cron: c.Crons[0].Name, Tick: dashboardtest.Epoch, Verdict: cronstore.SkippedOverlap, Reason: "Blocked by job 42 (waiting since 2026-11-20T12:00:00Z).", BlockedBy: 42, Count: 1,
	}}
	for path, want := range map[string][]string{
		"/":                 {c.Crons[0].Name + " is blocked by job 42", `blocked by job 42</a>`},
		"/crons":            {`href="/jobs/42">blocked by job 42</a>`, `is=blocked`},
		"/crons?is=blocked": {c.Crons[0].Name},
		pages.CronPath(c.Crons[0].Name): {
			`Blocked by <a href="/jobs/42">job 42</a> (waiting since 2026-11-20T12:00:00Z).`, "ticks are skipped since",
		},
		"/api/v1/crons?is=blocked":                             {`"blocked":{"job_id":42`},
		"/api/v1" + pages.CronPath(c.Crons[0].Name) + "/ticks": {`"blocked_by":42`},
	} {
		page := get(t, handlerOf(c), path).Body.String()
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s does not say %q", path, text)
			}
		}
	}
	c.Crons[0].Blocked = cronstore.Blocked{}
	if page := get(t, handlerOf(c), "/crons?is=blocked").Body.String(); strings.Contains(page, `href="`+pages.CronPath(c.Crons[0].Name)) {
		t.Error("a cron that is not blocked is listed as blocked")
	}
}

func TestSilentNodesShow(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Nodes[0].Reporting, c.Nodes[0].ReportedAt = false, dashboardtest.Epoch.Add(-2*time.Minute)
	c.Nodes[1].Reporting, c.Nodes[1].ReportedAt, c.Nodes[1].StartedAt = false, time.Time{}, dashboardtest.Epoch.Add(-10*time.Second)
	page := get(t, handlerOf(c), "/").Body.String()
	if n := strings.Count(page, "Hands over no metrics"); n != 1 || !strings.Contains(page, "the last ones came") {
		t.Errorf("%d nodes are silent, want the first alone:\n%s", n, page)
	}
	c.Nodes[1].StartedAt = dashboardtest.Epoch.Add(-2 * time.Minute)
	c.Nodes[0].State = nodestore.Left
	if page := get(t, handlerOf(c), "/").Body.String(); !strings.Contains(page, "none came yet") || strings.Contains(page, "the last ones came") {
		t.Errorf("want that the second node never reported and nothing of the first:\n%s", page)
	}
	nodes := decode[web.List[nodestore.Node]](t, get(t, handlerOf(c), "/api/v1/nodes")).Items
	if nodes[0].Reporting || nodes[0].ReportedAt.IsZero() {
		t.Errorf("the API says %+v", nodes[0])
	}
}
