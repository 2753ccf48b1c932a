package dashboard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/api"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/explain"
)

// post sends a body like a program or a form on the same machine.
func post(t *testing.T, h http.Handler, path, contentType, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8080"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.RemoteAddr = "127.0.0.1:4711"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	checkDocumented(t, r, w)
	return w
}

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
)

func TestCronAPI(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	shown := decode[api.CronDocument](t, get(t, h, "/api/v1/crons/backup"))
	if shown.Name != "backup" || shown.Description != "at 02:00 every day" || len(shown.Coming) != 5 || !shown.Coming[0].UTC.Equal(dashboardtest.Epoch.Add(14*time.Hour)) {
		t.Errorf("show: %+v", shown)
	}
	why := decode[explain.Explanation](t, get(t, h, "/api/v1/crons/backup/ticks/2026-11-21T03:00:00+01:00"))
	if why.Standing != explain.Future || !strings.Contains(why.Sentence, "lies in the future: it is due in 14h0m0s.") {
		t.Errorf("why: %+v", why)
	}
	for _, step := range []struct {
		path, body string
		status     int
		want, done string
	}{
		{"trigger", "", 201, `"job_id":43`, "trigger 0001-01-01 00:00:00  by the API from 127.0.0.1"},
		{"trigger", `{"at": "2026-11-19T02:00:00Z", "args": {"full": true}}`, 201, `"job_id":43`, `trigger 2026-11-19 02:00:00 {"full": true} by the API from 127.0.0.1`},
		{"pause", "", 200, `"changed":true`, "pause by the API from 127.0.0.1"},
		{"resume", "{}", 200, `"changed":false`, "resume by the API from 127.0.0.1"},
		{
			"backfill", `{"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00+01:00", "dry_run": true}`, 200,
			`"ticks":["2026-11-01T00:00:00Z"],"left":2,"more":true,"dry_run":true,"ran":0`, "plan 2026-11-01 00:00:00 to 2026-11-01 23:00:00 at most 1000",
		},
		{"backfill", `{"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z", "limit": 7}`, 200, `"dry_run":false,"ran":1`, "backfill by the API from 127.0.0.1"},
	} {
		w := post(t, h, "/api/v1/crons/backup/"+step.path, jsonType, step.body)
		if w.Code != step.status || !strings.Contains(w.Body.String(), step.want) || c.Done[len(c.Done)-1] != step.done {
			t.Errorf("%s %s: status %d, body %s, did %q", step.path, step.body, w.Code, w.Body, c.Done[len(c.Done)-1])
		}
		if location := w.Header().Get("Location"); step.path == "trigger" && location != "/api/v1/jobs/43" {
			t.Errorf("Location %q", location)
		}
	}
}

func TestCronAPIRefuses(t *testing.T) {
	t.Parallel()
	const from, to = `"from": "2026-11-01T00:00:00Z"`, `"to": "2026-11-02T00:00:00Z"`
	for _, c := range []struct {
		path, contentType, body string
		status                  int
		detail                  string
	}{
		{"backup/trigger", "text/plain", "{}", 415, "Content-Type must be application/json."},
		{"backup/trigger", formType, "at=1", 415, "Content-Type must be application/json."},
		{"backup/trigger", "", "{}", 415, "Content-Type must be application/json."},
		{"backup/trigger", jsonType, strings.Repeat(" ", web.MaxBody+1), 413, "The body is larger than 73728 bytes."},
		{"backup/trigger", jsonType, "{\"args\": {\"a\": \"\xff\"}}", 400, "The body is invalid: it is not UTF-8."},
		{"backup/trigger", jsonType, "[]", 400, "The body is invalid: an object is required."},
		{"backup/trigger", jsonType, "null", 400, "The body is invalid: an object is required."},
		{"backup/trigger", jsonType, "{", 400, "The body is invalid: it is not valid JSON at byte 1 (unexpected end of JSON input)."},
		{"backup/trigger", jsonType, `{"args": {"a": tru}}`, 400, "The body is invalid: it is not valid JSON at byte 19 (invalid character '}' in literal true (expecting 'e'))."},
		{"backup/trigger", jsonType, `{"at": "2026-11-19T02:00:00"}`, 422, `at must be a time such as 2026-11-20T15:04:05Z (got "2026-11-19T02:00:00").`},
		{"backup/trigger", jsonType, "{} {}", 400, "The body is invalid: it is not valid JSON at byte 4 (invalid character '{' after top-level value)."},
		{"backup/trigger", jsonType, `{"when": 1}`, 422, `the field "when" is unknown; the fields are at, args.`},
		{"backup/trigger", jsonType, `{"AT": "2026-11-19T02:00:00Z"}`, 422, `the field "AT" is unknown; the fields are at, args.`},
		{"backup/trigger", jsonType, `{"at": "2026-11-19T02:00:00Z", "at": "2026-11-18T02:00:00Z"}`, 422, `the field "at" stands twice.`},
		{"backup/trigger", jsonType, `{"args": {"a": [{"b": 1, "b": 2}]}}`, 422, `the field "b" stands twice.`},
		{"backup/trigger", jsonType, `{"args": [1]}`, 422, `args: not an object; want a JSON object such as {"name":"Ada"}.`},
		{"backup/trigger", jsonType, `{"args": null}`, 422, `args: not an object; want a JSON object such as {"name":"Ada"}.`},
		{"backup/trigger", jsonType, `{"args": {"a": ["\u0000"]}}`, 422, "args.a[0]: a NUL character, which PostgreSQL's jsonb refuses; want text without it."},
		{"backup/trigger", jsonType, `{"args": {"a": "` + strings.Repeat("x", 64<<10-8) + `"}}`, 422, "args: too large (got 65537 bytes as JSON); want at most 64 KiB."},
		{"backup/trigger", jsonType, `{"at": "soon"}`, 422, `at must be a time such as 2026-11-20T15:04:05Z (got "soon").`},
		{"backup/trigger", jsonType, `{"at": "2026-11-20T02:00:00Z"}`, 409, "The tick already has job 42 (fired), and a tick runs once."},
		{"backup/trigger", jsonType, `{"at": "2026-11-19T02:30:00Z"}`, 422, "at must be a due time of the cron."},
		{"backup/trigger", jsonType, `{"at": "2027-11-19T02:00:00Z"}`, 422, "at lies in the future, where the cron fires by itself."},
		{"nobody/trigger", jsonType, "", 404, "There is no such cron."},
		{"nobody/pause", jsonType, "", 404, "There is no such cron."},
		{"nobody/resume", jsonType, "", 404, "There is no such cron."},
		{"backup/pause", jsonType, `{"for": "1h"}`, 422, `the field "for" is unknown; the fields are reason.`},
		{"nobody/backfill", jsonType, "{" + from + ", " + to + "}", 404, "There is no such cron."},
		{"backup/backfill", jsonType, "{" + from + "}", 422, "to is missing."},
		{"backup/backfill", jsonType, "", 422, "from is missing; to is missing."},
		{"backup/backfill", jsonType, "{" + from + `, "to": "2026-11-01T00:00:00Z"}`, 422, "to must be after from."},
		{"backup/backfill", jsonType, "{" + from + `, "to": "2036-11-01T00:00:00Z"}`, 422, "to must be at most 366 days after from."},
		{"backup/backfill", jsonType, "{" + from + ", " + to + `, "limit": 10001}`, 422, "limit must be from 1 to 10000 (got 10001)."},
		{"backup/backfill", jsonType, "{" + from + ", " + to + `, "limit": -1}`, 422, "limit must be from 1 to 10000 (got -1)."},
		{"backup/backfill", jsonType, "{" + from + ", " + to + `, "limit": "7"}`, 422, `limit must be a whole number (got "7").`},
	} {
		cluster := dashboardtest.New()
		w := post(t, handlerOf(cluster), "/api/v1/crons/"+c.path, c.contentType, c.body)
		got := decode[web.Problem](t, w)
		if w.Code != c.status || got.Status != c.status || got.Detail != c.detail || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.60s: status %d, %q", c.path, c.body, w.Code, got.Detail)
		}
		if len(cluster.Done) != 0 {
			t.Errorf("%s %.60s did %v", c.path, c.body, cluster.Done)
		}
	}
	down := dashboardtest.New()
	down.Err = errors.New("dial db.internal: refused")
	if w := post(t, handlerOf(down), "/api/v1/crons/backup/pause", jsonType, ""); w.Code != 503 || strings.Contains(w.Body.String(), "db.internal") {
		t.Errorf("without a database: %d %s", w.Code, w.Body)
	}
	for path, status := range map[string]int{
		"/api/v1/crons/nobody": 404, "/api/v1/crons/nobody/ticks/2026-11-20T02:00:00Z": 404, "/api/v1/crons/backup/ticks/noon": 400,
	} {
		if w := get(t, handlerOf(dashboardtest.New()), path); w.Code != status {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestCronForms(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for _, step := range []struct{ path, body, location, done, says string }{
		{"trigger", "", "/crons/backup?did=trigger&job=43", "trigger 0001-01-01 00:00:00  by the dashboard from 127.0.0.1", `It runs now, as <a href="/jobs/43">job 43</a>`},
		{"pause", "", "/crons/backup?did=pause", "pause by the dashboard from 127.0.0.1", "It is paused."},
		{"resume", "", "/crons/backup?did=resume", "resume by the dashboard from 127.0.0.1", "It is resumed."},
		{"backfill", "from=2026-11-01T00:00&to=2026-11-02T00:00&limit=", "/crons/backup?did=backfill&n=1", "backfill by the dashboard from 127.0.0.1", "Backfilled: 1 tick runs."},
	} {
		w := post(t, h, "/crons/backup/"+step.path, formType, step.body)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != step.location || c.Done[len(c.Done)-1] != step.done {
			t.Fatalf("%s: %d to %s, did %v", step.path, w.Code, w.Header().Get("Location"), c.Done)
		}
		before := len(c.Done)
		page := get(t, h, step.location).Body.String()
		if flat := strings.ReplaceAll(page, "<span>", ""); !strings.Contains(flat, step.says) || len(c.Done) != before {
			t.Errorf("%s: the page does not say %q, or did it again", step.path, step.says)
		}
	}
	for path, want := range map[string]int{"/crons/nobody/pause": 404, "/crons/nobody/backfill": 404, "/crons/backup/backfill": 400} {
		w := post(t, h, path, formType, "from=noon&to=later")
		if w.Code != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
	if w := post(t, h, "/crons/backup/pause", jsonType, "{}"); w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("a form as JSON: %d", w.Code)
	}
}

func TestBackfillPreview(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Crons[0].Spec.Timezone = "Europe/Berlin"
	page := get(t, handlerOf(c), "/crons/backup/backfill?from=2026-11-01T00:00&to=2026-11-02T00:00&limit=5").Body.String()
	for _, want := range []string{
		"1 tick would run", "Sun 2026-11-01 00:00:00 CET", "Sat 2026-10-31 23:00:00 UTC", "2 between them stay as they are", "More are due than the limit",
		`name="limit" value="5"`, `method="post" action="/crons/backup/backfill"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the preview does not say %q", want)
		}
	}
	if diff := cmp.Diff([]string{"plan 2026-10-31 23:00:00 to 2026-11-01 23:00:00 at most 5"}, c.Done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
	if page := get(t, handlerOf(c), "/crons/backup/backfill").Body.String(); strings.Contains(page, "would run") || !strings.Contains(page, `value="2026-11-20T13:00"`) {
		t.Error("the empty form previews, or does not offer the last day")
	}
	if w := get(t, handlerOf(c), "/crons/backup/backfill?from=x&to=y"); w.Code != http.StatusBadRequest {
		t.Errorf("status %d", w.Code)
	}
}

func TestCronPageShowsPauseAndNotifications(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Told = []alerts.Notification{{Cron: "backup", Tick: c.Ticks["backup"][0].Tick, Target: "slack:#ops", State: alerts.NotificationFailed, Attempts: 2, Error: "gone"}}
	page := get(t, handlerOf(c), "/crons/backup").Body.String()
	for _, want := range []string{
		"Next runs", "Sat 2026-11-21 02:00:00 UTC", `data-local="`, `action="/crons/backup/pause"`, "slack:#ops could not be told in 2 tries (gone)",
		"Fired on time.", "job 41 is still running", `href="/crons/backup/backfill"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	c.Crons[0].PausedAt = dashboardtest.Epoch.Add(-time.Hour)
	page = get(t, handlerOf(c), "/crons/backup").Body.String()
	for want, there := range map[string]bool{
		"Paused by hand since 2026-11-20 11:00:00.000 UTC": true, `action="/crons/backup/resume"`: true, "/pause": false, "Next runs": false,
	} {
		if strings.Contains(page, want) != there {
			t.Errorf("on a paused cron: %q is %v", want, !there)
		}
	}
	options := optionsOf(c)
	options.Cluster.CronOps, options.Cluster.CronRunner = nil, nil
	readOnly := New(options)
	if page := get(t, readOnly, "/crons/backup").Body.String(); strings.Contains(page, `method="post"`) {
		t.Error("a page that cannot do anything has forms")
	}
	if w := post(t, readOnly, "/api/v1/crons/backup/pause", jsonType, ""); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}
