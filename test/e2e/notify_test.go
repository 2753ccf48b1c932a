package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

const failingCron = `
[cluster.leader_election]
check_interval = "200ms"
lease_duration = "1m"

[http]
allow_receiver_cidrs = ["127.0.0.0/8"]

[notify.hook]
type = "webhook"
url = "%s/failures"
http_config = { authorization = { credentials = "${env:HOOK_TOKEN}" } }

[jobs.break]
kind = "shell"
command = ["sh", "-c", "echo no >&2; exit 3"]
retry = { max_attempts = 2, backoff = "100ms" }

[[crons]]
name = "breaks"
schedule = "@manual"
job = "break"
on_failure = { notify = ["hook", "nobody"] }
description = "Breaks on purpose."
owner = "team-data"
runbook = "https://wiki.example.com/breaks?a=1&b=2"
`

// TestFailureIsNotifiedAfterCrash has a run fail for good while its receiver is
// down, kills every node, and starts another one once the receiver is back.
func TestFailureIsNotifiedAfterCrash(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	var refused atomic.Int64
	told := make(chan map[string]any, 16)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Authorization") != "Bearer hook-t0ken" {
			t.Errorf("%v, Authorization %q", err, r.Header.Get("Authorization"))
		}
		if !up.Load() {
			refused.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		told <- body
	}))
	t.Cleanup(hook.Close)
	c := newCluster(t, fmt.Sprintf(failingCron, hook.URL))
	for _, id := range []string{"a", "b"} {
		c.startProgram(forgeBinary(t), id, "HOOK_TOKEN=hook-t0ken")
	}
	stdout, stderr, code := forgeWith(t, []string{"FORGE_DATABASE_URL=" + c.url, "HOOK_TOKEN=hook-t0ken"},
		"cron", "trigger", "breaks", "-o", "json", "--config", c.config)
	if code != 0 {
		t.Fatalf("trigger: %s", stderr)
	}
	row := decode[struct {
		Tick  time.Time
		JobID int64 `json:"job_id"`
	}](t, stdout)
	eventually(t, "the run has failed for good and the receiver refused", func() bool {
		return refused.Load() > 0 && c.number(`SELECT count(*) FROM river_job WHERE state = 'discarded'`) == 1
	})
	for id, p := range c.nodes {
		c.signal(id, syscall.SIGKILL)
		<-p.done
		delete(c.nodes, id)
	}
	hook.CloseClientConnections() // and has dealt with what they had sent
	up.Store(true)
	c.startProgram(forgeBinary(t), "c", "HOOK_TOKEN=hook-t0ken")
	var body map[string]any
	select {
	case body = <-told:
	case <-time.After(nodes.WaitTimeout):
		t.Fatal("nobody was told")
	}
	tick := row.Tick.UTC().Format(time.RFC3339Nano)
	alert := body["alerts"].([]any)[0].(map[string]any)
	labels, annotations := alert["labels"].(map[string]any), alert["annotations"].(map[string]any)
	if labels["cron"] != "breaks" || labels["tick"] != tick || labels["job_id"] != fmt.Sprint(row.JobID) || body["groupKey"] != "cron breaks@"+tick ||
		!strings.Contains(annotations["description"].(string), "the last of 2 attempts") || !strings.HasSuffix(alert["generatorURL"].(string), "/crons/breaks") {
		t.Errorf("told %v", body)
	}
	if annotations["owner"] != "team-data" || annotations["runbook_url"] != "https://wiki.example.com/breaks?a=1&b=2" {
		t.Errorf("told %v", annotations)
	}
	c.demand(0, "https://wiki.example.com/breaks?a=1&b=2", "cron", "show", "breaks")
	_, document, _ := get(c.nodes["c"].listen(), "/api/v1/crons/breaks")
	if !strings.Contains(string(document), `"description":"Breaks on purpose.","owner":"team-data","runbook":"https://wiki.example.com/breaks?a=1\u0026b=2"`) {
		t.Errorf("the API has %s", document)
	}
	eventually(t, "the delivery is written down", func() bool {
		return c.number(`SELECT count(*) FROM forge_notifications WHERE state = 'delivered' AND target = 'hook'`) == 1
	})
	for _, want := range []string{"is discarded", "; hook was told at ", `; nobody is to be told (`, `receiver "nobody": not configured on this node`} {
		eventually(t, "forge cron why says "+want, func() bool { return strings.Contains(c.must("cron", "why", "breaks", tick), want) })
	}
	if events, _, _ := c.forge("events"); !strings.Contains(events, "notification_delivered") {
		t.Errorf("forge events: %s", events)
	}
	if len(told) != 0 {
		t.Errorf("told %d times more", len(told))
	}
	c.stopAll()
}
