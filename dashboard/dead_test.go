package dashboard

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestDeadAPI(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	groups := decode[web.List[jobstore.DeadGroup]](t, get(t, h, "/api/v1/dead"))
	if len(groups.Items) != 1 || groups.Items[0].Jobs != 2 || groups.Items[0].NewestJob != 42 {
		t.Errorf("groups: %+v", groups)
	}
	if none := decode[web.List[jobstore.DeadGroup]](t, get(t, h, "/api/v1/dead?kind=nobody")); none.Items == nil || len(none.Items) != 0 {
		t.Errorf("groups of a kind without any: %+v", none)
	}
	letters := decode[web.List[jobstore.DeadLetter]](t, get(t, h, "/api/v1/dead/"+dashboardtest.DeadGroup+"?limit=2"))
	if len(letters.Items) != 2 || letters.Items[0].ID != 42 || !strings.HasPrefix(letters.Next, "/api/v1/dead/"+dashboardtest.DeadGroup+"?cursor=") {
		t.Errorf("letters: %+v", letters)
	}
	for _, step := range []struct{ action, body, want, done string }{
		{"retry", `{"group": "d28cfe5c16a"}`, `"jobs":2,"changed":2,"dry_run":false`, "retry []d28cfe5c16a older 0s newer 0s by the API from 127.0.0.1"},
		{"discard", `{"ids": [42, 41], "kind": "dump"}`, `"changed":2`, "discard [42 41]dump older 0s newer 0s by the API from 127.0.0.1"},
		{"discard", `{"error": "full", "older_than": "2d", "newer_than": "7d"}`, `"changed":2`, "discard []full older 48h0m0s newer 168h0m0s by the API from 127.0.0.1"},
		{"retry", `{"all": true}`, `"changed":2`, "retry [] older 0s newer 0s by the API from 127.0.0.1"},
		{"retry", `{"all": true, "dry_run": true}`, `"jobs":2,"changed":0,"dry_run":true`, "retry [] older 0s newer 0s by the API from 127.0.0.1"},
	} {
		w := post(t, h, "/api/v1/bulk/dead/"+step.action, jsonType, step.body)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), step.want) || c.Done[len(c.Done)-1] != step.done {
			t.Errorf("%s %s: status %d, body %s, did %q", step.action, step.body, w.Code, w.Body, c.Done)
		}
	}
	if len(c.Done) != 4 {
		t.Errorf("did %q", c.Done)
	}
}

func TestDeadAPIRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		body   string
		status int
		detail string
	}{
		{`{}`, 422, "One or more of ids, group, kind, error, older_than, newer_than and filter are required, or all alone."},
		{`{"all": true, "kind": "dump"}`, 422, "One or more of ids, group, kind, error, older_than, newer_than and filter are required, or all alone."},
		{`{"older_than": "soon"}`, 422, "older_than must be a duration such as 90s, 6h or 2d."},
		{`{"newer_than": "-1h"}`, 422, "newer_than must be a duration such as 90s, 6h or 2d."},
		{`{"group": "d0123456789"}`, 404, cluster.ErrNoSuchGroup.Error()},
		{`{"kind": "vast"}`, 422, "The filter matches 20001 dead letters, but one request changes at most 20000. Narrow the filter, or use forge dead discard."},
	} {
		c := dashboardtest.New()
		w := post(t, handlerOf(c), "/api/v1/bulk/dead/discard", jsonType, test.body)
		if got := decode[web.Problem](t, w); w.Code != test.status || got.Detail != test.detail || len(c.Done) != 0 {
			t.Errorf("%s: status %d, %q, did %q", test.body, w.Code, got.Detail, c.Done)
		}
	}
	c := dashboardtest.New()
	for path, want := range map[string]int{"/api/v1/dead/d0123456789": 404, "/api/v1/dead/" + dashboardtest.DeadGroup + "?limit=x": 400, "/dead/d0123456789": 404, "/dead/d0123456789/retry": 404} {
		if w := get(t, handlerOf(c), path); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	options := optionsOf(c)
	options.Cluster.DeadLetterOps = nil
	readOnly := New(options)
	if page := get(t, readOnly, "/dead/"+dashboardtest.DeadGroup).Body.String(); strings.Contains(page, `method="post"`) || strings.Contains(page, "/discard") {
		t.Error("a page that cannot do anything has forms")
	}
	if w := post(t, readOnly, "/api/v1/bulk/dead/retry", jsonType, `{"all": true}`); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}

func TestDeadPages(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for path, wants := range map[string][]string{
		"/dead": {`href="/dead/d28cfe5c16a">dump</a>`, "disk &lt;b&gt;full&lt;/b&gt;<", "1h 00m ago", "in 1h 00m", `href="/dead/d28cfe5c16a/discard"`, `<a href="/dead" aria-current="page"`},
		"/dead/" + dashboardtest.DeadGroup: {
			`href="/jobs/42">#42</a>`, `href="/crons/backup">backup</a>`, "node-2", "attempt 2 on node-7: node lost: no heartbeat<", `action="/dead/d28cfe5c16a/retry"`, `name="id" value="41"`,
			"2 dead letters in the group", "Retry all…",
		},
		"/dead/" + dashboardtest.DeadGroup + "/retry":         {"Retry 2 dead letters of dump?", "They run once more", `method="post" action="/dead/d28cfe5c16a/retry"`, `name="up_to" value="42"`, `name="as_of" value="2026-11-20T12:00:00Z"`},
		"/dead/" + dashboardtest.DeadGroup + "/discard":       {"Discard 2 dead letters of dump?", "removed from the list"},
		"/dead/" + dashboardtest.DeadGroup + "/discard?id=41": {`Discard dump <span class="h1-id">#41</span>?`, "It is removed from the list", `name="id" value="41"`, "disk full", "Discard it"},
	} {
		page := get(t, h, path).Body.String()
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not say %q", path, want)
			}
		}
	}
	if len(c.Done) != 0 {
		t.Fatalf("reading did %q", c.Done)
	}
	for _, step := range []struct{ action, fields, location, done, says string }{
		{"discard", "up_to=42&as_of=2026-11-20T12:00:00Z", "/dead?did=discard&n=2", "discard []d28cfe5c16a older 0s newer 0s by the dashboard from 127.0.0.1", "2 dead letters discarded."},
		{"retry", "id=42", "/dead/d28cfe5c16a?did=retry&n=2", "retry [42]d28cfe5c16a older 0s newer 0s by the dashboard from 127.0.0.1", "2 jobs are available again."},
	} {
		w := post(t, h, "/dead/"+dashboardtest.DeadGroup+"/"+step.action, formType, step.fields)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != step.location || c.Done[len(c.Done)-1] != step.done {
			t.Errorf("%s: %d to %s, did %q", step.action, w.Code, w.Header().Get("Location"), c.Done)
		}
		if page := get(t, h, step.location).Body.String(); !strings.Contains(page, step.says) || strings.Contains(page, "No dead letters.") != (step.action == "discard") {
			t.Errorf("%s: the page does not say %q, or shows what was", step.action, step.says)
		}
	}
	for path, want := range map[string]int{"/dead/d0123456789/retry": 404, "/dead/" + dashboardtest.DeadGroup + "/retry": 404} {
		if w := post(t, h, path, formType, "id=none"); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := post(t, h, "/dead/"+dashboardtest.DeadGroup+"/retry", formType, ""); w.Code != http.StatusBadRequest {
		t.Errorf("all, without what was counted: %d", w.Code)
	}
}

// A dead letter is discarded only after a confirmation, which leads back to its group while
// that has other dead letters.
func TestDiscardOneDeadLetter(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	const group = "/dead/" + dashboardtest.DeadGroup
	if page := get(t, h, group).Body.String(); !strings.Contains(page, `href="`+group+`/discard?id=41"`) || strings.Contains(page, `action="`+group+`/discard"`) {
		t.Error("the group discards without a confirmation")
	}
	for path, want := range map[string]int{"/discard?id=40": 404, "/discard?id=x": 404, "/retry?id=41": 200} {
		if w := get(t, h, group+path); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w := post(t, h, group+"/discard", formType, "id=41")
	back := w.Header().Get("Location")
	if w.Code != http.StatusSeeOther || back != group+"?did=discard&n=2" {
		t.Fatalf("%d to %s", w.Code, back)
	}
	if page := get(t, h, back).Body.String(); !strings.Contains(page, "2 dead letters discarded.") {
		t.Error("the group does not say what was done")
	}

	last := dashboardtest.New()
	options := optionsOf(last)
	options.Cluster.Source.Dead = lastLeft{dashboardtest.Dead{Cluster: last}}
	if back := post(t, New(options), group+"/discard", formType, "id=41").Header().Get("Location"); back != "/dead?did=discard&n=2" {
		t.Errorf("the last one leads to %s", back)
	}
}

// lastLeft has a group that is empty after an action.
type lastLeft struct{ dashboardtest.Dead }

func (f lastLeft) DeadGroups(ctx context.Context, filter jobstore.DeadFilter) ([]jobstore.DeadGroup, error) {
	if len(f.Done) > 0 {
		return nil, nil
	}
	return f.Dead.DeadGroups(ctx, filter)
}
