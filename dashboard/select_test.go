package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// wantTexts checks that each page has these texts.
func wantTexts(t *testing.T, h http.Handler, pages map[string][]string) {
	t.Helper()
	for path, want := range pages {
		page := get(t, h, path).Body.String()
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %s", path, text)
			}
		}
	}
}

// Selected jobs are changed after a confirmation that leads back to the filtered list.
func TestSelectedJobs(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Jobs = append(c.Jobs, jobstore.Job{ID: 31, Kind: "dump", State: "discarded"}, jobstore.Job{ID: 30, Kind: "dump", State: "available"})
	h := handlerOf(c)
	wantTexts(t, h, map[string][]string{
		"/jobs?kind=dump&sort=newest": {`type="checkbox" name="id" value="31" form="picks"`, `form="picks" formaction="/bulk/jobs/retry"`, `name="filter" value="kind:dump"`},
		"/bulk/jobs/retry?filter=kind:dump&sort=newest&id=31&id=30": {
			"Retry 2 jobs?", "<dd>#31, #30</dd>", `name="id" value="31"`, `name="id" value="30"`, `name="kind" value="dump"`, `href="/jobs?kind=dump&amp;sort=newest"`,
		},
	})
	w := post(t, h, "/bulk/jobs/retry", formType, "filter=kind:dump&id=31&id=30&id=7")
	if to := w.Header().Get("Location"); to != "/jobs?did=retry&kind=dump&n=1" || !cmp.Equal(c.Done, []string{"retry job 31 by the dashboard from 127.0.0.1"}) {
		t.Errorf("%d to %s, did %v", w.Code, to, c.Done)
	}
	for _, path := range []string{"/bulk/jobs/retry?id=x", "/bulk/jobs/retry?id=-1"} {
		if w := get(t, h, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := post(t, h, "/bulk/jobs/retry", formType, strings.Repeat("id=1&", web.MaxLimit+1)); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("too many: %d", w.Code)
	}
}

// Selected dead letters, or all that match a filter, are changed after a confirmation.
func TestSelectedDeadLetters(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	const group = "/dead/" + dashboardtest.DeadGroup
	wantTexts(t, h, map[string][]string{
		"/dead?filter=kind:dump":              {`href="/bulk/dead/retry?filter=kind%3Adump"`, "Retry all 2…"},
		group:                                 {`type="checkbox" name="id" value="42" form="picks"`, `formaction="/bulk/dead/discard"`, `name="group" value="d28cfe5c16a"`, `href="` + group + `/retry"`},
		group + "?filter=node:node-2":         {`href="/bulk/dead/retry?filter=node%3Anode-2&amp;group=d28cfe5c16a"`},
		"/bulk/dead/retry?filter=kind:dump":   {"Retry 2 dead letters?", "<dt>Filter</dt><dd>kind:dump</dd>", `name="up_to" value="42"`, `name="as_of" value="2026-`, `href="/dead?filter=kind%3Adump"`},
		"/bulk/dead/discard?id=42&id=41":      {"Discard 2 dead letters?", "<dd>#42, #41</dd>", `name="id" value="41"`},
		"/bulk/dead/retry?group=d28cfe5c16a":  {`href="/dead/d28cfe5c16a?`},
		"/bulk/dead/retry?group=d0123456789":  {"No dead letter matches."},
		"/bulk/dead/retry?kind=vast&filter=x": {"found &#34;x&#34;, want KEY:VALUE"},
	})
	for _, step := range []struct{ fields, to, did string }{
		{"filter=kind:dump&up_to=42", "/dead?did=retry&filter=kind%3Adump&n=2", "retry [] older 0s newer 0s by the dashboard from 127.0.0.1"},
		{"group=d28cfe5c16a&id=42&up_to=42&as_of=2026-11-20T12:00:00Z", "/dead/d28cfe5c16a?did=retry&n=2", "retry [42] older 0s newer 0s by the dashboard from 127.0.0.1"},
	} {
		c.Done = nil
		w := post(t, h, "/bulk/dead/retry", formType, step.fields)
		if to := w.Header().Get("Location"); to != step.to || !cmp.Equal(c.Done, []string{step.did}) {
			t.Errorf("%s: %d to %s, did %v", step.fields, w.Code, to, c.Done)
		}
	}
	c.Done = nil
	for _, fields := range []string{"", "up_to=42", "filter=kind:dump", "filter=kind:dump&up_to=42&as_of=yesterday", "filter=knd:dump&up_to=42"} {
		if w := post(t, h, "/bulk/dead/retry", formType, fields); w.Code != http.StatusBadRequest || len(c.Done) > 0 {
			t.Errorf("%q: %d, did %v", fields, w.Code, c.Done)
		}
	}
}

// The heads of columns lead to the list in their order, with the filter.
func TestListsAreSorted(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Nodes[1].Running = 40
	h := handlerOf(c)
	wantTexts(t, h, map[string][]string{
		"/jobs?kind=dump":      {`aria-sort="descending"><a href="/jobs?kind=dump&amp;sort=newest" title="Newest first">Job</a>`, `href="/jobs?kind=dump&amp;sort=slowest"`, `>Slowest of the last hour</a>`},
		"/jobs?sort=slowest":   {`aria-sort="descending"><a href="/jobs?sort=slowest" title="Slowest first">Took</a>`, `type="hidden" name="sort" value="slowest"`, `href="/jobs?sort=slowest&amp;state=running"`},
		"/crons?filter=job:d*": {`aria-sort="ascending"><a href="/crons?filter=job%3Ad%2A&amp;sort=name"`, `href="/crons?filter=job%3Ad%2A&amp;sort=next"`},
		"/crons?sort=next&q=B": {`aria-sort="ascending"><a href="/crons?q=B&amp;sort=next"`},
		"/dead?sort=jobs":      {`aria-sort="descending"><a href="/dead?sort=jobs" title="Most jobs first">Jobs</a>`},
		"/nodes?sort=load":     {`href="/nodes?sort=load" aria-current="true">load</a>`},
	})
	if page := get(t, h, "/nodes?sort=load").Body.String(); strings.Index(page, `id="node-node-2"`) > strings.Index(page, `id="node-node-1"`) {
		t.Error("the node with more load comes second")
	}
	if nodes := decode[web.List[nodestore.Node]](t, get(t, h, "/api/v1/nodes?sort=load")); nodes.Items[0].NodeID != "node-2" {
		t.Errorf("the API begins with %s", nodes.Items[0].NodeID)
	}
	for _, path := range []string{"/jobs", "/crons", "/dead", "/nodes"} {
		for _, at := range []string{path, "/api/v1" + path} {
			if w := get(t, h, at+"?sort=color"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "one of") {
				t.Errorf("%s: %d %s", at, w.Code, w.Body)
			}
		}
	}
}
