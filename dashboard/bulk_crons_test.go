package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// someCrons are two crons that fire and one that is paused.
func someCrons() *dashboardtest.Cluster {
	c := dashboardtest.New()
	c.Crons = nil
	for _, name := range []string{"bill-1", "bill-2", "report"} {
		c.Crons = append(c.Crons, cronstore.Cron{Name: name, Spec: cronstore.Spec{Job: "dump", Schedule: "@daily", Timezone: "UTC"}})
	}
	c.Crons[2].PausedAt = dashboardtest.Epoch.Add(-time.Hour)
	c.Crons[2].PauseChange = &cronstore.PauseChange{Paused: true, By: "ada", Reason: "no <paper>"}
	return c
}

// Crons that are selected, or all that match the filter, are paused after a confirmation that
// counts those that are not paused.
func TestBulkPause(t *testing.T) {
	t.Parallel()
	c := someCrons()
	h := handlerOf(c)
	wantTexts(t, h, map[string][]string{
		"/crons": {
			`type="checkbox" name="name" value="bill-1" form="picks"`, `form="picks" formaction="/bulk/crons/pause"`, `form="picks" formaction="/bulk/crons/resume"`,
			`href="/bulk/crons/pause?"`, `href="/bulk/crons/resume?"`,
		},
		"/crons?cron=bill-*&sort=next":                     {`href="/bulk/crons/pause?filter=cron%3Abill-%2A"`, `name="sort" value="next"`},
		"/crons/report":                                    {"by ada: no &lt;paper&gt;.", `action="/crons/report/resume"`},
		"/crons/bill-1":                                    {`href="/bulk/crons/pause?name=bill-1"`},
		"/bulk/crons/pause":                                {"Pause 2 crons?", "<dd>none: all crons</dd>", `name="counted" value="2"`, `name="as_of" value="2026-`, `name="reason" maxlength="200"`},
		"/bulk/crons/resume?q=REP&sort=next":               {"Resume 1 cron?", "<dt>Name or job</dt><dd>REP</dd>", `name="q" value="REP"`, `href="/crons?q=REP&amp;sort=next"`},
		"/bulk/crons/pause?name=bill-2&name=report":        {"Pause 1 cron?", "<dd>bill-2, report</dd>", `name="name" value="report"`},
		"/bulk/crons/pause?is=paused":                      {"No cron matches that is not paused."},
		"/bulk/crons/resume?filter=cron:bill-*":            {"No paused cron matches."},
		"/bulk/crons/resume?filter=crn:bill-*":             {"found the key &#34;crn&#34;"},
		"/crons?did=pause&n=2&operation=OPERATION1&q=bill": {"2 crons were paused.", `action="/bulk/crons/undo"`, `name="operation" value="OPERATION1"`, `name="q" value="bill"`},
		"/crons?did=resume&n=0":                            {"0 crons were resumed."},
	})
	for path, not := range map[string]string{"/crons?is=paused": "/bulk/crons/pause?", "/crons?cron=bill-*": "/bulk/crons/resume?", "/crons?did=resume&n=0": "act-undo", "/bulk/crons/pause?is=paused": "<form"} {
		if page := get(t, h, path).Body.String(); strings.Contains(page, `"`+not) || strings.Contains(page, `id="`+not) {
			t.Errorf("%s has %s", path, not)
		}
	}
	const asOf = "&as_of=2099-01-01T00:00:00Z"
	for _, step := range []struct{ path, fields, to, did string }{
		{"pause", "filter=cron:bill-*&sort=next&counted=2&reason=+move+" + asOf, "/crons?did=pause&filter=cron%3Abill-%2A&n=2&operation=OPERATION1&sort=next", "paused=true [bill-1 bill-2] by the dashboard from 127.0.0.1 because move"},
		{"resume", "name=report&name=bill-1&counted=1" + asOf, "/crons?did=resume&n=1&operation=OPERATION1", "paused=false [report] by the dashboard from 127.0.0.1"},
		{"undo", "q=bill&operation=OPERATION1", "/crons?did=resume&n=2&operation=OPERATION2&q=bill", "undo OPERATION1 by the dashboard from 127.0.0.1"},
	} {
		c.Done = nil
		w := post(t, h, "/bulk/crons/"+step.path, formType, step.fields)
		if to := w.Header().Get("Location"); to != step.to || !cmp.Equal(c.Done, []string{step.did}) {
			t.Errorf("%s %s: %d to %s, did %q", step.path, step.fields, w.Code, to, c.Done)
		}
	}
	c.Done = nil
	for fields, want := range map[string]int{
		"": http.StatusBadRequest, "counted=2": http.StatusBadRequest, "counted=0" + asOf: http.StatusBadRequest, "counted=2&is=odd" + asOf: http.StatusBadRequest,
		"counted=1" + asOf: http.StatusConflict, "counted=1&is=paused" + asOf: http.StatusSeeOther, // nothing is left to do
		strings.Repeat("name=a&", web.MaxLimit+1) + "counted=1" + asOf: http.StatusUnprocessableEntity,
	} {
		if w := post(t, h, "/bulk/crons/pause", formType, fields); w.Code != want || len(c.Done) > 0 {
			t.Errorf("%.40q: %d, want %d; did %v", fields, w.Code, want, c.Done)
		}
	}
	if w := post(t, h, "/bulk/crons/undo", formType, "operation=other"); w.Code != http.StatusConflict {
		t.Errorf("undo another operation: %d", w.Code)
	}
}

// The API pauses and resumes crons by names, by the filters of the list, or all of them.
func TestBulkPauseByTheAPI(t *testing.T) {
	t.Parallel()
	c := someCrons()
	h := handlerOf(c)
	type answer struct {
		Crons, Changed int
		Operation      string
		DryRun         bool `json:"dry_run"`
	}
	const by = " by the API from 127.0.0.1"
	for _, step := range []struct {
		action, body string
		want         answer
		did          []string
	}{
		{"pause", `{"filter": "cron:bill-*", "dry_run": true}`, answer{Crons: 2, DryRun: true}, nil},
		{"pause", `{"q": "bill", "reason": "move"}`, answer{2, 2, dashboardtest.Operation, false}, []string{"paused=true [bill-1 bill-2]" + by + " because move"}},
		{"pause", `{"is": "paused"}`, answer{}, nil},
		{"pause", `{"names": ["report", "bill-2", "nobody"]}`, answer{1, 1, dashboardtest.Operation, false}, []string{"paused=true [bill-2]" + by}},
		{"resume", `{"all": true}`, answer{1, 1, dashboardtest.Operation, false}, []string{"paused=false [report]" + by}},
	} {
		c.Done = nil
		w := post(t, h, "/api/v1/bulk/crons/"+step.action, "application/json", step.body)
		if got := decode[answer](t, w); w.Code != http.StatusOK || got != step.want || !cmp.Equal(c.Done, step.did) {
			t.Errorf("%s %s: %d %+v, did %q", step.action, step.body, w.Code, got, c.Done)
		}
	}
	for body, want := range map[string]string{
		`{}`:                            "names are required",
		`{"names": ["a"], "all": true}`: "names are required",
		`{"filter": "crn:x"}`:           `found the key \"crn\"`,
		`{"is": "odd"}`:                 "must be one of",
	} {
		if w := post(t, h, "/api/v1/bulk/crons/pause", "application/json", body); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	c.Done = nil
	w := post(t, h, "/api/v1/bulk/crons/undo", "application/json", `{"operation": "OPERATION1"}`)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"changed":2`) || !cmp.Equal(c.Done, []string{"undo OPERATION1" + by}) {
		t.Errorf("undo: %d %s, did %q", w.Code, w.Body, c.Done)
	}
	if w := post(t, h, "/api/v1/bulk/crons/undo", "application/json", `{"operation": "x"}`); w.Code != http.StatusConflict {
		t.Errorf("undo another operation: %d", w.Code)
	}
}
