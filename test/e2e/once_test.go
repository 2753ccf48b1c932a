package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const writesConfig = unhurried + `
[dashboard]
auth = "token"
[jobs.report]
kind = "shell"
command = ["true"]
capability = "of-nobody"
[jobs.broken]
kind = "shell"
command = ["false"]
retry = { max_attempts = 1 }
[[crons]]
name = "nightly"
schedule = "@hourly"
job = "report"
[notify.hook]
type = "webhook"
url = "http://127.0.0.1:1/hook"
[[alerts]]
name = "quiet"
condition = "vector(0) > 1"
severity = "info"
notify = ["hook"]
`

// write is a POST, and what there is once when it was done once.
type write struct{ path, body, once string }

func eventOf(kind string) string {
	return fmt.Sprintf(`SELECT count(*) FROM forge_events WHERE type = '%s'`, kind)
}

// writes are every POST of the API, in an order in which each has something to do: the
// jobs 1 to 3 are due tomorrow, and then nobody can run them; 4 is a dead letter.
func writes(tomorrow string) []write {
	hour := time.Now().UTC().Truncate(time.Hour)
	span := fmt.Sprintf(`{"from": %q, "to": %q}`, hour.Add(-4*time.Hour).Format(time.RFC3339), hour.Add(-150*time.Minute).Format(time.RFC3339))
	return []write{
		{"/api/v1/jobs", `{"kind": "report", "queue": "other", "at": "` + tomorrow + `"}`, `SELECT count(*) FROM river_job WHERE queue = 'other'`},
		{"/api/v1/jobs/{id}/cancel", "", eventOf("job_cancelled")},
		{"/api/v1/jobs/{id}/retry", "", eventOf("job_retried")},
		{"/api/v1/jobs/{second}/discard", "", eventOf("job_discarded")},
		{"/api/v1/bulk/jobs/cancel", `{"queue": "idle"}`, `SELECT count(*) FROM river_job WHERE id = 3 AND state = 'cancelled'`},
		{"/api/v1/bulk/jobs/retry", `{"queue": "idle", "state": "cancelled"}`, `SELECT count(*) FROM river_job WHERE id = 3 AND state = 'available'`},
		{"/api/v1/bulk/jobs/discard", `{"queue": "idle"}`, `SELECT count(*) FROM river_job WHERE id = 3 AND state = 'discarded'`},
		{"/api/v1/bulk/dead/retry", `{"kind": "broken"}`, `SELECT count(*) FROM river_job WHERE id = 4 AND max_attempts = 2`},
		{"/api/v1/bulk/dead/discard", `{"kind": "nothing of this"}`, `SELECT 1`},
		{"/api/v1/crons/{name}/trigger", "", eventOf("cron_triggered")},
		{"/api/v1/crons/{name}/backfill", span, eventOf("cron_backfilled")},
		{"/api/v1/crons/{name}/pause", "", eventOf("cron_paused")},
		{"/api/v1/crons/{name}/resume", "", eventOf("cron_resumed")},
		{"/api/v1/bulk/crons/pause", `{"names": ["nightly"]}`, `SELECT count(*) - 1 FROM forge_events WHERE type = 'cron_paused'`},
		{"/api/v1/bulk/crons/resume", `{"names": ["nightly"]}`, `SELECT count(*) - 1 FROM forge_events WHERE type = 'cron_resumed'`},
		{"/api/v1/bulk/crons/undo", `{"operation": "{operation}"}`, `SELECT count(*) - 2 FROM forge_events WHERE type = 'cron_paused'`},
		{"/api/v1/queues/{queue}/pause", "", eventOf("queue_paused")},
		{"/api/v1/queues/{queue}/resume", "", eventOf("queue_resumed")},
		{"/api/v1/alerts/{alert}/silence", `{"for": "2h"}`, eventOf("alert_silenced")},
		{"/api/v1/alerts/{alert}/unsilence", "", eventOf("alert_unsilenced")},
		{"/api/v1/alerts/{alert}/test", "", eventOf("alert_tried")},
		{"/api/v1/tokens", `{"name": "ci"}`, `SELECT count(*) FROM forge_tokens WHERE name = 'ci'`},
		{"/api/v1/tokens/{token}/revoke", "", `SELECT count(*) FROM forge_tokens WHERE revoked_at IS NOT NULL`},
		{"/api/v1/sessions/{session}/end", "", `SELECT 1 - count(*) FROM forge_user_sessions`},
		{"/api/v1/apply", "", `SELECT 1`},
		{"/api/v1/config/{hash}/revert", "", `SELECT count(*) FROM forge_events WHERE type = 'config_applied' AND data ? 'reverted'`},
		{"/api/v1/leaders/{role}/step-down", "", `SELECT count(*) FROM forge_events WHERE type = 'hand_over_asked' AND role = 'metrics_aggregator'`},
		{"/api/v1/leaders/{compactor}/transfer", `{"to": "{standby}"}`, `SELECT count(*) FROM forge_events WHERE type = 'hand_over_asked' AND role = 'log_compactor'`},
		{"/api/v1/leaders/{scheduler}/drill", "", eventOf("leader_drilled")},
		{"/api/v1/nodes/{node}/drain", "", eventOf("node_drained")},
		{"/api/v1/nodes/{node}/undrain", "", eventOf("node_undrained")},
	}
}

// TestOneKeyOnTwoNodes sends every write to two nodes at once with one key: one of them
// does it, both give its answer, and another request may not use the key.
func TestOneKeyOnTwoNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, strings.Replace(writesConfig, "@hourly", "@daily", 1))
	earlier := c.applied()
	if err := os.WriteFile(c.config, []byte(writesConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c.startAll("a", "b")
	made, stderr, code := c.forge("token", "create", "admin", "--scope", "admin")
	if code != 0 {
		t.Fatal(stderr)
	}
	c.token = strings.TrimSpace(made)
	a, b := c.nodes["a"].listen(), c.nodes["b"].listen()
	tomorrow := time.Now().UTC().Add(24 * time.Hour).Format(time.RFC3339)
	for _, queue := range []string{"default", "default", "idle"} {
		c.demandPosted(a, "/api/v1/jobs", fmt.Sprintf(`{"kind": "report", "at": %q, "queue": %q}`, tomorrow, queue))
	}
	c.demandPosted(a, "/api/v1/jobs", `{"kind": "broken"}`)
	eventually(t, "the fourth job is a dead letter", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE id = 4 AND metadata #>> '{forge:dead,group}' <> ''`) == 1
	})
	c.exec(`INSERT INTO forge_user_sessions (hash, issuer, subject, name, groups, sealed, valid_until, expires_at)
		VALUES (decode(repeat('ab', 32), 'hex'), 'i', '1', 'ann', '{}', '', now() + interval '1 h', now() + interval '1 h')`)
	fill := strings.NewReplacer("{id}", "1", "{second}", "2", "{name}", "nightly", "{queue}", "default", "{alert}", "quiet", "{token}", "ci", "{session}", "abababababababab",
		"{role}", "metrics_aggregator", "{compactor}", "log_compactor", "{scheduler}", "scheduler", "{node}", "b", "{hash}", earlier)
	plain := strings.NewReplacer("{second}", "{id}", "{queue}", "{name}", "{token}", "{name}", "{compactor}", "{role}", "{scheduler}", "{role}")
	tried := map[string]bool{}
	operation := regexp.MustCompile(`"operation":"(\w+)"`)
	var undoable string // the last operation on many crons
	for i, w := range writes(tomorrow) {
		tried[plain.Replace(w.path)] = true
		path, key := fill.Replace(w.path), fmt.Sprintf("key-%d", i)
		if strings.HasPrefix(path, "/api/v1/leaders/") || strings.HasPrefix(path, "/api/v1/nodes/") {
			eventually(t, "every role is led", func() bool {
				return c.number(`SELECT count(*) FROM forge_leaders WHERE node_id IS NOT NULL AND lease_until > now() AND role IN ('scheduler', 'metrics_aggregator', 'log_compactor')`) == 3
			})
		}
		if before, after, found := strings.Cut(w.body, "{standby}"); found { // no earlier request moves the role
			w.body = before + c.standby("log_compactor") + after
		}
		w.body = strings.Replace(w.body, "{operation}", undoable, 1)
		var first, second string
		var both sync.WaitGroup
		both.Go(func() { first = c.persist(a, path, w.body, key) })
		both.Go(func() { second = c.persist(b, path, w.body, key) })
		both.Wait()
		if done := operation.FindStringSubmatch(first); done != nil {
			undoable = done[1]
		}
		secrets := strings.Count(first+second, `"token":"forge_`)
		if made := path == "/api/v1/tokens"; first != second && !made || made != (secrets == 1) {
			t.Errorf("%s: %s and %s", path, first, second)
		}
		if n := c.number(w.once); n != 1 {
			t.Errorf("%s: %s is %d", path, w.once, n)
		}
		if code, answer := postAs(t, c.token, b, path, w.body+" ", key); code != 409 || !strings.Contains(answer, "was used for another request") {
			t.Errorf("%s with another body: %d %s", path, code, answer)
		}
	}
	c.wantTried(a, tried)
	eventually(t, "the audit log has every outcome", func() bool { return c.number(`SELECT count(*) FROM forge_audit WHERE outcome = 'begun'`) == 0 })
	if n := c.number(`SELECT count(*) FROM forge_audit WHERE outcome = 'done' AND detail NOT LIKE '%a repeat'`); n != int64(6+len(writes(tomorrow))) {
		t.Errorf("%d actions were done", n)
	}
}

// applied puts the file in force before there are nodes, and returns its hash.
func (c *cluster) applied() (hash string) {
	c.t.Helper()
	for _, args := range [][]string{{"migrate", "up"}, {"apply", "--config", c.config}} {
		if _, stderr, code := c.forge(args...); code != 0 {
			c.t.Fatal(stderr)
		}
	}
	if err := c.pool.QueryRow(c.t.Context(), `SELECT hash FROM forge_config`).Scan(&hash); err != nil {
		c.t.Fatal(err)
	}
	return hash
}

// standby is the one of two nodes that does not lead a role.
func (c *cluster) standby(role string) string {
	c.t.Helper()
	var leader string
	if err := c.pool.QueryRow(c.t.Context(), `SELECT node_id FROM forge_leaders WHERE role = $1`, role).Scan(&leader); err != nil {
		c.t.Fatal(err)
	}
	return other(leader)
}

func (c *cluster) demandPosted(address, path, body string) {
	c.t.Helper()
	if code, answer := postAs(c.t, c.token, address, path, body, ""); code != 201 {
		c.t.Fatalf("%s: %d %s", path, code, answer)
	}
}

// persist repeats a request for as long as its key is busy, and returns the answer.
func (c *cluster) persist(address, path, body, key string) (answer string) {
	eventually(c.t, path+" is answered", func() bool {
		code, text := postAs(c.t, c.token, address, path, body, key)
		if answer = text; code == 409 && strings.Contains(text, "is still running") {
			return false
		}
		if code >= 300 {
			c.t.Errorf("%s: %d %s", path, code, text)
		}
		return true
	})
	return answer
}

// wantTried holds what was tried to the API's document.
func (c *cluster) wantTried(address string, tried map[string]bool) {
	c.t.Helper()
	_, _, text := bearing(c.t, c.token, http.MethodGet, address+"/api/openapi.json", "")
	doc := decode[struct {
		Paths map[string]map[string]any `json:"paths"`
	}](c.t, text)
	maps.DeleteFunc(doc.Paths, func(_ string, methods map[string]any) bool { return methods["post"] == nil })
	if there, did := slices.Sorted(maps.Keys(doc.Paths)), slices.Sorted(maps.Keys(tried)); !slices.Equal(there, did) {
		c.t.Errorf("the writes are %v, and tried were %v", there, did)
	}
}
