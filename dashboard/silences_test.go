package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

func TestSilenceAPI(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"quiet/silence", `{"for": "90m", "reason": "noon"}`, 200, `"alert":"quiet","created_at":"0001-01-01T00:00:00Z","until":"2026-11-20T13:30:00Z","created_by":"the API from 127.0.0.1","reason":"noon"}`},
		{"quiet/silence", `{"until": "2026-11-21T00:00:00+02:00"}`, 200, `"until":"2026-11-21T00:00:00+02:00"`},
		{"quiet/silence", "", 422, "for is missing; want a time such as 2h, or until"},
		{"quiet/silence", `{"for": "2h", "until": "2026-11-21T00:00:00Z"}`, 422, "until cannot be combined with for"},
		{"quiet/silence", `{"for": "soon"}`, 422, `for is not a duration (got \"soon\")`},
		{"quiet/silence", `{"for": "-2h"}`, 422, "negative"},
		{"quiet/silence", `{"for": "0"}`, 422, "Invalid silence: ahead"},
		{"quiet/silence", `{"hours": 2}`, 422, `the field \"hours\" is unknown`},
		{"nobody/silence", `{"for": "2h"}`, 404, "There is no such alert."},
		{"quiet/unsilence", "", 200, `{"alert":"quiet","changed":true}`},
		{"nobody/unsilence", "", 404, "There is no such alert."},
		{"no_scheduler_leader/test", "", 202, `{"alert":"no_scheduler_leader","targets":["pager"]}`},
		{"quiet/test", "", 409, "The alert has no receivers"},
		{"nobody/test", "", 404, "There is no such alert."},
	} {
		if w := post(t, h, "/api/v1/alerts/"+step.path, jsonType, step.body); w.Code != step.status || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%s %s: %d %s", step.path, step.body, w.Code, w.Body)
		}
	}
	want := []string{
		"silence quiet for 1h30m0s until - by the API from 127.0.0.1 (noon)",
		"silence quiet for 0s until 2026-11-20 22:00:00.000 UTC by the API from 127.0.0.1 ()",
		"unsilence quiet by the API from 127.0.0.1", "test no_scheduler_leader by the API from 127.0.0.1",
	}
	if diff := cmp.Diff(want, c.Done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
}

func TestSilenceByThePage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	list := get(t, h, "/alerts").Body.String()
	for _, want := range []string{
		`href="/alerts/no_scheduler_leader/silence"`, `href="/alerts/no_scheduler_leader/test"`, `action="/alerts/quiet/unsilence"`,
		"by ada: &lt;noon&gt;", `data-mode="until"`,
	} {
		if !strings.Contains(list, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(list, `href="/alerts/quiet/test"`) {
		t.Error("an alert that tells nobody can be tested")
	}
	for path, want := range map[string]string{
		"/alerts/quiet/silence": `<option value="2h" selected>`, "/alerts/no_scheduler_leader/test": "pager, slack:#ops will be notified",
	} {
		if !strings.Contains(get(t, h, path).Body.String(), want) {
			t.Errorf("%s lacks %s", path, want)
		}
	}
	for _, step := range []struct {
		path, body string
		status     int
		leads      string
	}{
		{"quiet/silence", "for=8h&until=&reason=+noon+", 303, "/alerts?alert=quiet&did=silence"},
		{"quiet/silence", "for=2h&until=2026-11-20T15:00&reason=", 303, "/alerts?alert=quiet&did=silence"},
		{"quiet/silence", "for=2h&until=later", 400, ""},
		{"quiet/silence", "reason=x", 422, ""},
		{"quiet/unsilence", "", 303, "/alerts?alert=quiet&did=unsilence"},
		{"no_scheduler_leader/test", "", 303, "/alerts?alert=no_scheduler_leader&did=test"},
		{"quiet/test", "", 409, ""},
	} {
		if w := post(t, h, "/alerts/"+step.path, formType, step.body); w.Code != step.status || w.Header().Get("Location") != step.leads {
			t.Errorf("%s %s: %d to %q", step.path, step.body, w.Code, w.Header().Get("Location"))
		}
	}
	want := []string{
		"silence quiet for 8h0m0s until - by the dashboard from 127.0.0.1 (noon)",
		"silence quiet for 0s until 2026-11-20 15:00:00.000 UTC by the dashboard from 127.0.0.1 ()",
		"unsilence quiet by the dashboard from 127.0.0.1", "test no_scheduler_leader by the dashboard from 127.0.0.1",
	}
	if diff := cmp.Diff(want, c.Done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{
		"/alerts?did=silence&alert=quiet": "quiet is silenced.", "/alerts?did=unsilence&alert=quiet": "quiet is no longer silenced.",
		"/alerts?did=test&alert=quiet": "are being notified",
	} {
		if !strings.Contains(get(t, h, path).Body.String(), want) {
			t.Errorf("%s does not say %q", path, want)
		}
	}
}

// Pages and their streams do not offer actions that the reader's token does not cover.
// Readers of different scopes do not share a stream.
func TestPagesOfferOnlyPermittedActions(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	offers := map[string][]string{
		"/alerts":         {"/alerts/no_scheduler_leader/silence", "/alerts/quiet/unsilence"},
		"/jobs":           {"/enqueue"},
		"/jobs?kind=dump": {"/bulk/jobs/cancel"},
		"/jobs/42":        {"/jobs/42/cancel"},
		"/crons/backup":   {"/crons/backup/trigger", "/crons/backup/backfill"},
		"/queues":         {"/queues/bulk/resume"},
		"/dead":           {"/retry"},
		"/leaders":        {"/leaders/scheduler/step-down"},
		"/nodes":          {"/nodes/node-1/drain"},
	}
	covers := map[string]func(path string) bool{
		"viewer":   func(string) bool { return false },
		"operator": func(path string) bool { return path != "/leaders" && path != "/nodes" },
		"admin":    func(string) bool { return true },
	}
	for path, offered := range offers {
		for token, may := range covers {
			page := requestAs(t, h, token, http.MethodGet, path).Body.String()
			for _, offer := range offered {
				if got := strings.Contains(page, offer); got != may(path) {
					t.Errorf("%s as %s offers %s: %v", path, token, offer, got)
				}
			}
		}
	}
}
