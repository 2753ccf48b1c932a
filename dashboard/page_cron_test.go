package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// manyTicks gives the cron backup a tick a day at 02:00 in Berlin, the newest first. The run of
// each tenth has failed.
func manyTicks(c *dashboardtest.Cluster, count int) {
	zone, _ := time.LoadLocation("Europe/Berlin")
	c.Crons[0].Spec.Timezone = "Europe/Berlin"
	c.Crons[0].CreatedAt = dashboardtest.Epoch.AddDate(-20, 0, 0)
	c.Ticks["backup"], c.Jobs = nil, nil
	for i := range count {
		id := int64(count - i)
		state := "completed"
		if i%10 == 5 {
			state = "discarded"
		}
		c.Ticks["backup"] = append(c.Ticks["backup"], cronstore.Tick{
			Cron: "backup", Tick: time.Date(2026, 11, 20-i, 2, 0, 0, 0, zone), Verdict: cronstore.Fired, JobID: id, Term: 7, NodeID: "node-1", Count: 1,
		})
		c.Jobs = append(c.Jobs, jobstore.Job{ID: id, Kind: "dump", State: state, Cron: "backup"})
	}
}

func TestCronPageShowsOwnerAndRunbook(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	if page := get(t, h, "/crons/backup").Body.String(); strings.Contains(page, "<dt>Owner</dt>") || strings.Contains(page, "<dt>Runbook</dt>") {
		t.Error("the page has an empty owner or runbook")
	}
	spec := &c.Crons[0].Spec
	spec.Description, spec.Owner, spec.Runbook = "Copies <all> tables.", "team-data", "https://wiki.example.com/backup?a=1&b=2"
	page := get(t, h, "/crons/backup").Body.String()
	for _, want := range []string{
		"Copies &lt;all&gt; tables.", "<dt>Owner</dt><dd>team-data</dd>",
		`<dt>Runbook</dt><dd><a href="https://wiki.example.com/backup?a=1&amp;b=2" rel="noreferrer">https://wiki.example.com/backup?a=1&amp;b=2</a></dd>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

func TestLedgerJumpsToATick(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	manyTicks(c, 200)
	h := handlerOf(c)
	page := get(t, h, "/crons/backup?at=2026-10-01T02:00").Body.String()
	if !strings.Contains(page, `class="chosen" aria-current="true"><td class="lead-cell"><a class="quiet clock" href="/crons/backup?at=2026-10-01T00%3A00%3A00Z#h-ticks">2026-10-01 02:00:00 CEST`) {
		t.Errorf("the tick is not marked:\n%s", page)
	}
	for want, there := range map[string]bool{
		"2026-10-06 02:00:00 CEST": true, "2026-10-07 02:00:00 CEST": false, "2026-08-13 02:00:00 CEST": true,
		`href="/crons/backup?at=2026-10-07T00%3A00%3A00Z#h-ticks" rel="prev">Newer ticks`: true, "Older ticks": true,
		`value="2026-10-01T02:00:00"`: true, "outcome=failure&amp;after=": false, "after=2026-10-01T00%3A00%3A00Z&amp;outcome=failure": true,
	} {
		if strings.Contains(page, want) != there {
			t.Errorf("%s is there: %v", want, !there)
		}
	}
	for at, want := range map[string]string{
		"2026-10-01T03:00":     `is not due by the schedule`,
		"2027-01-01T02:00":     "lies in the future",
		"2020-01-01T02:00":     "is not in the ledger",
		"2026-10-01T00:00:00Z": "The tick 2026-10-01T00:00:00Z of backup",
	} {
		if page := get(t, h, "/crons/backup?at="+at).Body.String(); !strings.Contains(page, want) {
			t.Errorf("%s: no %q in %s", at, want, page)
		}
	}
	if page := get(t, h, "/crons/backup?at=2020-01-01T02:00").Body.String(); !strings.Contains(page, `href="/crons/backup/trigger?at=2020-01-01T02%3A00%3A00%2B01%3A00">Run this tick`) {
		t.Error("a tick that has no run is not offered")
	}
	if w := get(t, h, "/crons/backup?at=yesterday"); w.Code != http.StatusBadRequest {
		t.Errorf("no instant: %d", w.Code)
	}
}

func TestFindRuns(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	manyTicks(c, 1200)
	c.Jobs = append(c.Jobs[:100:100], c.Jobs[1150:]...) // retention removed the others
	h := handlerOf(c)
	for query, want := range map[string]string{
		"outcome=failure": "2026-11-15",
		"outcome=failure&before=2026-11-15T01:00:00Z": "2026-11-05",
		"outcome=success&before=2026-11-15T01:00:00Z": "2026-11-14",
		"outcome=failure&after=2026-11-05T01:00:00Z":  "2026-11-15",
		"outcome=failure&before=2026-08-17T00:00:00Z": "2023-09-22", // over three batches
		"outcome=success&after=2026-11-20T01:00:00Z":  "",
		"outcome=other&before=2026-08-17T00:00:00Z":   "",
	} {
		page := get(t, h, "/crons/backup?"+query).Body.String()
		if found := strings.Contains(page, `class="chosen"`) && strings.Contains(page, "The tick "+want); found != (want != "") {
			t.Errorf("%s: found %v, want %q", query, found, want)
		}
		if want == "" && !strings.Contains(page, "among the 5,000 ticks on that side") {
			t.Errorf("%s: the page does not say that there is none", query)
		}
	}
	if w := get(t, h, "/crons/backup?outcome=failure&before=x"); w.Code != http.StatusBadRequest {
		t.Errorf("no instant: %d", w.Code)
	}
}

// A run with other arguments: the form has the cron's own ones, and a schema checks them.
func TestRunWithArguments(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Crons[0].Spec.Args = []byte(`{"table": "a\"b", "speed": "slow"}`)
	h := handlerOf(c)
	page := get(t, h, "/crons/backup/trigger").Body.String()
	for _, want := range []string{`name="arg.table" value="a&#34;b"`, `<option value="&#34;slow&#34;" selected>`, `href="/crons/backup/trigger?raw=1"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the form lacks %s:\n%s", want, page)
		}
	}
	c.Crons[0].Spec.Args = []byte(`{"table": "x", "other": [1]}`)
	if page := get(t, h, "/crons/backup/trigger?at=2026-11-20T02:00").Body.String(); !strings.Contains(page, "&#34;other&#34;: [") || !strings.Contains(page, `value="2026-11-20T02:00"`) {
		t.Errorf("arguments that are no fields, or the tick, are lost:\n%s", page)
	}
	w := post(t, h, "/crons/backup/trigger", formType, "arg.table=users&arg.speed=&at=")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/crons/backup?did=trigger&job=43" || len(c.Done) != 1 || c.Done[0] != `trigger 0001-01-01 00:00:00 {"table":"users"} by the dashboard from 127.0.0.1` {
		t.Errorf("%d to %s, did %q", w.Code, w.Header().Get("Location"), c.Done)
	}
	w = post(t, h, "/crons/backup/trigger", formType, "args=%7B%22a%22%3A+1%7D&at=2026-11-19T02:00")
	if w.Code != http.StatusSeeOther || len(c.Done) != 2 || !strings.Contains(c.Done[1], `trigger 2026-11-19 02:00:00 {"a": 1} by`) {
		t.Errorf("%d, did %q", w.Code, c.Done)
	}
	for body, want := range map[string]string{
		"args=%5B1%5D&at=":                 "args: not an object",
		"args=%7B":                         "args: ",
		"arg.gone=1":                       "gone is no argument of the kind any more.",
		"args=%7B%7D&at=never%3Cb%3E":      "At must be a time such as",
		"arg.table=a&at=2026-11-20T02:00":  "The tick already has job 42 (fired), and a tick runs once.",
		"args=%7B%22note%22%3A%22mine%22]": `{&#34;note&#34;:&#34;mine&#34;]</textarea>`,
	} {
		w := post(t, h, "/crons/backup/trigger", formType, body)
		if w.Code < 400 || !strings.Contains(w.Body.String(), want) || !strings.Contains(w.Body.String(), `id="act-run"`) {
			t.Errorf("%s: %d, the form lacks %q", body, w.Code, want)
		}
	}
	if len(c.Done) != 2 {
		t.Errorf("did %q", c.Done)
	}
	if w := get(t, h, "/crons/nothing/trigger"); w.Code != http.StatusNotFound {
		t.Errorf("no cron: %d", w.Code)
	}
}
