package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/openapi"
)

const apiCrons = `
[[crons]]
name = "report"
schedule = "@hourly"
command = ["true"]
`

// post sends JSON to a node, as any program would.
func post(t *testing.T, address, path, body string) (code int, answer string) {
	t.Helper()
	return postWithKey(t, address, path, body, "")
}

// postWithKey does so with an Idempotency-Key, unless it is empty.
func postWithKey(t *testing.T, address, path, body, key string) (code int, answer string) {
	t.Helper()
	return postAs(t, "", address, path, body, key)
}

// postAs does so with a token, unless it is empty.
func postAs(t *testing.T, token, address, path, body, key string) (code int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	hold(t, request, openapi.Answer{Status: response.StatusCode, Header: response.Header, Body: text})
	return response.StatusCode, string(text)
}

// addOnce adds a job again and again with one key.
func addOnce(t *testing.T, c *cluster, address string) {
	t.Helper()
	const keyed = `{"kind": "report"}`
	code, first := postWithKey(t, address, "/api/v1/jobs", keyed, "once")
	if code != 201 || !strings.Contains(first, `"kind":"report"`) {
		t.Fatalf("%d %s", code, first)
	}
	if code, again := postWithKey(t, address, "/api/v1/jobs", keyed, "once"); code != 201 || !strings.Contains(again, first) {
		t.Fatalf("the repeat: %d %s", code, again)
	}
	if code, other := postWithKey(t, address, "/api/v1/jobs", `{"kind": "report", "priority": 2}`, "once"); code != 409 || !strings.Contains(other, "was used for another request") {
		t.Fatalf("another with the key: %d %s", code, other)
	}
	if n := c.number(`SELECT count(*) FROM forge_events WHERE type = 'job_enqueued'`); n != 1 {
		t.Errorf("%d jobs were added", n)
	}
}

// TestCronsOverHTTP does with a real node what the commands do, and finds it in
// the same ledger and event log.
func TestCronsOverHTTP(t *testing.T) {
	t.Parallel()
	c := newCluster(t, apiCrons)
	c.start("a")
	address := c.nodes["a"].listen()
	const cron = "/api/v1/crons/report"
	demand := func(code int, answer string, status int, want string) {
		t.Helper()
		if code != status || !strings.Contains(answer, want) {
			t.Fatalf("status %d, want %d with %q: %s", code, status, want, answer)
		}
	}
	code, body, _ := get(address, cron)
	demand(code, string(body), 200, `"schedule":"@hourly"`)

	code, answer := post(t, address, cron+"/pause", "")
	demand(code, answer, 200, `"changed":true`)
	code, answer = post(t, address, cron+"/pause", "")
	demand(code, answer, 200, `"changed":false`)
	if n := c.number(`SELECT count(*) FROM forge_crons WHERE paused_at IS NOT NULL`); n != 1 {
		t.Error("the cron is not paused")
	}
	code, answer = post(t, address, cron+"/resume", "{}")
	demand(code, answer, 200, `"changed":true`)

	code, answer = post(t, address, cron+"/trigger", `{"args": {"full": true}}`)
	demand(code, answer, 201, `"verdict":"triggered"`)
	addOnce(t, c, address)
	hour := time.Now().UTC().Truncate(time.Hour).Add(-3 * time.Hour)
	at := hour.Format(time.RFC3339)
	code, answer = post(t, address, cron+"/trigger", fmt.Sprintf(`{"at": %q}`, at))
	demand(code, answer, 201, `"verdict":"triggered"`)
	code, answer = post(t, address, cron+"/trigger", fmt.Sprintf(`{"at": %q}`, at))
	demand(code, answer, 409, "a tick runs once")

	span := fmt.Sprintf(`"from": %q, "to": %q`, hour.Add(-2*time.Hour).Format(time.RFC3339), hour.Add(2*time.Hour).Format(time.RFC3339))
	code, answer = post(t, address, cron+"/backfill", "{"+span+`, "dry_run": true}`)
	demand(code, answer, 200, `"left":1,"more":false,"dry_run":true,"ran":0`)
	if n := c.number(`SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'backfilled'`); n != 0 {
		t.Errorf("a dry run ran %d ticks", n)
	}
	code, answer = post(t, address, cron+"/backfill", "{"+span+"}")
	demand(code, answer, 200, `"dry_run":false,"ran":3`)

	code, body, _ = get(address, cron+"/ticks/"+url.PathEscape(at))
	demand(code, string(body), 200, "was recorded as triggered: triggered by the API from 127.0.0.1; job ")
	code, body, _ = get(address, cron+"/ticks?limit=2")
	demand(code, string(body), 200, `"next":"/api/v1/crons/report/ticks?cursor=`)
	if why, _, code := c.forge("cron", "why", "report", at); code != 0 || !strings.Contains(why, "the API from 127.0.0.1") {
		t.Errorf("forge cron why: %s", why)
	}
	for kind, want := range map[string]int64{"cron_paused": 1, "cron_resumed": 1, "cron_triggered": 2, "cron_backfilled": 1} {
		if n := c.number(`SELECT count(*) FROM forge_events WHERE type = $1 AND data ->> 'by' = 'the API from 127.0.0.1'`, kind); n != want {
			t.Errorf("%d events %s, want %d", n, kind, want)
		}
	}
	eventually(t, "every run has ended", func() bool {
		return c.number(`SELECT count(*) FROM forge_cron_ticks t JOIN river_job j ON j.id = t.job_id
			WHERE t.verdict IN ('triggered', 'backfilled') AND j.state = 'completed'`) == 5
	})
}
