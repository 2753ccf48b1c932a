package dashboard

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/eventstore"
)

// Only admins, and everybody of a listener without tokens, get entries of the audit log.
func TestActivityHidesTheAuditLog(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	c.Audit = []access.AuditEntry{{ID: 1, At: dashboardtest.Epoch, Actor: "ada", Source: "10.0.0.1", Action: "drill", Outcome: access.Done}}
	h := New(options)
	for token, sees := range map[string]bool{"viewer": false, "operator": false, "admin": true} {
		for _, path := range []string{"/activity", "/api/v1/activity"} {
			w := requestAs(t, h, token, http.MethodGet, path)
			if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "10.0.0.1") != sees || strings.Contains(w.Body.String(), ">audit log<") != (sees && path == "/activity") {
				t.Errorf("%s of %s: %d, want an entry of the audit log: %t\n%s", path, token, w.Code, sees, w.Body)
			}
			w = requestAs(t, h, token, http.MethodGet, path+"?filter=log:audit")
			if wanted := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[sees]; w.Code != wanted {
				t.Errorf("the audit log on %s of %s: %d, want %d", path, token, w.Code, wanted)
			}
		}
	}
	if w := get(t, handlerOf(c), "/activity"); !strings.Contains(w.Body.String(), "10.0.0.1") {
		t.Errorf("without tokens: %s", w.Body)
	}
}

func TestActivityShowsFacts(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Events = []eventstore.Event{
		{ID: 9, At: dashboardtest.Epoch, Type: eventstore.LeaderElected, NodeID: "node-1", Role: "scheduler", Term: 4, Data: json.RawMessage(`{"gap_ms": 13, "reason": "stepped_down"}`)},
		{ID: 8, At: dashboardtest.Epoch, Type: eventstore.CronPaused, Data: json.RawMessage(`{"cron": "a/b", "by": "ada"}`)},
		{ID: 7, At: dashboardtest.Epoch, Type: eventstore.JobCancelled, Data: json.RawMessage(`{"ids": [1,2,3,4,5,6,7], "jobs": 7, "nested": {"a": [1]}, "none": null}`)},
		{ID: 6, At: dashboardtest.Epoch, Type: eventstore.ConfigRejected, NodeID: "node-2", Data: json.RawMessage(`{"reason": "line_3 <b>", "problems": []}`)},
		{ID: 5, At: dashboardtest.Epoch, Type: "of_another_program", Data: json.RawMessage(`["not an object"]`)},
	}
	c.Audit = []access.AuditEntry{
		{ID: 3, At: dashboardtest.Epoch, Actor: "ada", Source: "10.0.0.1", Action: "job.retry", Object: "42", Outcome: access.Refused, Detail: "409"},
		{ID: 2, At: dashboardtest.Epoch, Actor: "ada", Source: "10.0.0.1", Action: "cron.pause", Object: "a/b", Outcome: access.Done},
	}
	page := get(t, handlerOf(c), "/activity").Body.String()
	for _, want := range []string{
		`<tr id="events-9">`, `<a href="/leaders?role=scheduler">Scheduler</a>`, "gap 13 ms, stepped down, term 4",
		`<a href="/crons/a%2Fb">a/b</a>`, "ids 1, 2, 3, 4, 5, 2 more, jobs 7, nested {&#34;a&#34;:[1]}",
		`<span class="word bad">Config rejected</span>`, "line_3 &lt;b&gt;", "Of another program",
		`<tr id="audit-3">`, `<a href="/jobs/42">42</a>`, `<span class="word bad">job.retry</span>`, "refused 409", "ada from 10.0.0.1",
		`<a href="/activity" aria-current="page" data-key="e">Activity</a>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, "none <") || strings.Contains(page, "problems") {
		t.Error("the page shows facts without a value")
	}
}

// The fields of the form narrow the filter, which the page keeps in its address.
func TestActivityFilter(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	page := get(t, h, "/activity?filter=by:ada&type=config_*&text=a+b")
	if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), `value="by:ada type:config_* text:&#34;a b&#34;"`) {
		t.Errorf("%d %s", page.Code, page.Body)
	}
	if got := c.Asks[len(c.Asks)-1].Where.String(); got != `by:ada type:config_* text:"a b"` {
		t.Errorf("the filter is %s", got)
	}
	for _, bad := range []string{"filter=knd:x", "filter=log:other", "filter=since:soon", "since=soon", "before=1", "before=1-other-2"} {
		if w := get(t, h, "/activity?"+bad); w.Code != http.StatusBadRequest {
			t.Errorf("page with %s: %d", bad, w.Code)
		}
	}
	for _, bad := range []string{"filter=knd:x", "before=1-events-1", "follow=perhaps", "filter=" + url.QueryEscape(`text:"open`), "cursor=x"} {
		if w := get(t, h, "/api/v1/activity?"+bad); w.Code != http.StatusBadRequest {
			t.Errorf("API with %s: %d", bad, w.Code)
		}
	}
}

func TestActivityIsFollowed(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	server := httptest.NewServer(handlerOf(c))
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/activity?follow=true&limit=2", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for range 2 {
		var e activity.Entry
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil || e.Log != activity.Events {
			t.Fatalf("got %q, %v", lines.Text(), lines.Err())
		}
	}
	if list := decode[web.List[activity.Entry]](t, get(t, handlerOf(c), "/api/v1/activity")); len(list.Items) != 2 || list.Next != "" {
		t.Errorf("the list is %+v", list)
	}
}
