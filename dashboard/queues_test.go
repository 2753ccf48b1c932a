package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestQueueAPI(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	queues := decode[web.List[jobstore.Queue]](t, get(t, h, "/api/v1/queues")).Items
	if len(queues) != 2 || queues[0].Name != "bulk" || queues[0].PausedAt.IsZero() || queues[1].GlobalLimit != 3 {
		t.Errorf("queues: %+v", queues)
	}
	want := `{"items":[{"scope":"job","name":"dump","limit":9,"running":2,"available":5},` +
		`{"scope":"queue","name":"default","limit":2,"key":"args.tenant","running":4,"available":0},` +
		`{"scope":"queue","name":"default","limit":100,"burst":5,"per":"1m","started":7,"running":0,"available":0}]}` + "\n"
	if diff := cmp.Diff(want, get(t, h, "/api/v1/limits").Body.String()); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"bulk/pause", "", 200, `{"name":"bulk","paused_at":"2026-11-20T12:00:00Z","paused_by":"the API from 127.0.0.1","changed":true}`},
		{"bulk/pause", `{"for": "2h", "reason": "why"}`, 200, `"pause_reason":"why","paused_until":"2026-11-20T14:00:00Z","changed":true}`},
		{"bulk/pause", `{"for": "0s"}`, 422, "for must be from a second to 366 days"},
		{"bulk/pause", `{"for": "tomorrow"}`, 422, "want a time such as 90m, 2h or 3d"},
		{"bulk/pause", `{"kind": "send", "key": "tenant=acme"}`, 200, `{"name":"bulk","kind":"send","key":"args.tenant","value":"acme","paused_at":"2026-11-20T12:00:00Z","paused_by":"the API from 127.0.0.1","changed":true}`},
		{"bulk/pause", `{"key": "acme"}`, 422, `no value in \"acme\"; want KEY=VALUE such as args.tenant=acme`},
		{"bulk/resume", `{"key": "args.tenant=acme"}`, 200, `{"name":"bulk","key":"args.tenant","value":"acme","changed":false}`},
		{"bulk/resume", `{"reason": "done"}`, 200, `{"name":"bulk","changed":false}`},
		{"nobody/pause", "", 404, "There is no such queue."},
	} {
		if w := post(t, h, "/api/v1/queues/"+step.path, jsonType, step.body); w.Code != step.status || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%s: %d %s", step.path, w.Code, w.Body)
		}
	}
	if diff := cmp.Diff([]string{
		"pause queue by the API from 127.0.0.1", "pause queue by the API from 127.0.0.1 because why for 2h0m0s",
		"pause queue by the API from 127.0.0.1 of kind send, args.tenant=acme", "resume queue by the API from 127.0.0.1 of args.tenant=acme", "resume queue by the API from 127.0.0.1 because done",
	}, c.Done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
}

func TestQueuesPage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	page := get(t, h, "/queues").Body.String()
	for _, want := range []string{`action="/queues/bulk/resume"`, `action="/queues/default/pause"`, `href="/queues/bulk"`, `href="/jobs?queue=bulk&amp;state=available"`, "paused</span>", "h-limits", ">dump<", "4 running, at most 2 for each args.tenant", "7 of 100 started in 1m, 5 at once"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	w := post(t, h, "/queues/bulk/pause", formType, "")
	if location := w.Header().Get("Location"); w.Code != http.StatusSeeOther || location != "/queues?did=pause&queue=bulk" {
		t.Fatalf("%d to %s", w.Code, location)
	}
	if page := get(t, h, "/queues?did=pause&queue=bulk").Body.String(); !strings.Contains(page, "bulk is paused. Running jobs continue.") {
		t.Error("the page does not say that the queue is paused")
	}
	if w := post(t, h, "/queues/nobody/pause", formType, ""); w.Code != http.StatusNotFound {
		t.Errorf("an unknown queue: %d", w.Code)
	}
	options := optionsOf(c)
	options.Cluster.QueueOps = nil
	if page := get(t, New(options), "/queues").Body.String(); strings.Contains(page, `method="post"`) {
		t.Error("a page that cannot do anything has forms")
	}
}
