package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

func TestServeWithoutDatabaseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	_, stderr, code := forgeWith(t, nil, "serve")
	if code != 5 || !strings.Contains(stderr, "forge dev") || !strings.Contains(stderr, "FORGE_DATABASE_URL") ||
		strings.Count(strings.TrimSpace(stderr), "\n") != 0 {
		t.Errorf("exit %d: %q", code, stderr)
	}
	unreachable := []string{"FORGE_DATABASE_URL=postgres://forge:hunter2@127.0.0.1:1/forge"}
	_, stderr, code = forgeWith(t, unreachable, "serve")
	if code != 5 || !strings.Contains(stderr, "forge dev") || strings.Contains(stderr, "hunter2") {
		t.Errorf("exit %d: %q", code, stderr)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(bad, []byte("[node]\nslots = \"many\"\n[nodes]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, everySecond)
	for _, test := range []struct {
		args []string
		want int
	}{
		{[]string{"version"}, 0},
		{[]string{"check", "--config", bad}, 3},
		{[]string{"nonsense"}, 2},
		{[]string{"leader", "statsu"}, 2},
		{[]string{"leader", "status", "--bogus"}, 2},
		{[]string{"job", "show"}, 2},
		{[]string{"job", "show", "zero"}, 2},
		{[]string{"job", "show", "424242"}, 4},
		{[]string{"cron", "next", "no-such-cron"}, 4},
		{[]string{"cron", "next", "61 * * * *"}, 2},
		{[]string{"job", "list", "--state", "lost"}, 2},
		{[]string{"job", "list", "-o", "xml"}, 2},
		{[]string{"leader", "history", "--role", "nobody"}, 4},
		{[]string{"leader", "history", "--role", "scheduler"}, 0},
		{[]string{"job", "list", "-n", "-1"}, 2},
		{[]string{"leader", "history", "-n", "0"}, 2},
		{[]string{"job", "enqueue", "pulse", "--queue", "No Such"}, 2},
		{[]string{"dev", "--listen", "8080"}, 2},
		{[]string{"dev", "--listen", "0.0.0.0:8080"}, 2},
	} {
		stdout, stderr, code := c.forge(test.args...)
		if code != test.want {
			t.Errorf("forge %v: exit %d, want %d\n%s%s", test.args, code, test.want, stdout, stderr)
		}
	}
}

func TestCheckReportsEveryMistakeAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	text := "[node]\nslots = \"many\"\n\n[cluster.leader_election]\nleese_duration = \"3s\"\ncheck_interval = 5\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := forgeWith(t, nil, "check", "--config", path)
	if code != 3 {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{
		path + ":2:", path + ":5:1: cluster.leader_election.leese_duration", "lease_duration", path + ":6:", `"5s"`,
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
}

func TestInitWritesAFileThatPasses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	if out, errs, code := forgeWith(t, nil, "init", "--config", path); code != 0 {
		t.Fatalf("init: %d %s %s", code, out, errs)
	}
	if out, errs, code := forgeWith(t, nil, "check", "--strict", "--config", path); code != 0 {
		t.Errorf("check: %d %s %s", code, out, errs)
	}
	if _, _, code := forgeWith(t, nil, "init", "--config", path); code != 6 {
		t.Errorf("a second init: exit %d, want 6", code)
	}
}

// The kinds of the example, with what can be seen of a run afterwards.
func TestRunsCanBeSeenAfterwards(t *testing.T) {
	t.Parallel()
	listen := freeAddress(t)
	c := newCluster(t, fmt.Sprintf(`
[http]
listen = %q
allow_private_targets = true
[jobs.greet]
kind = "shell"
command = ["sh", "-c", "echo hello $FORGE_JOB; exit 3"]
retry = { max_attempts = 1 }
[jobs.ping]
kind = "http"
url = "http://%s/healthz"
[jobs.count]
kind = "sql"
statement = "SELECT 40 + 2 AS answer"
`, listen, listen))
	p := launch(t, []string{"FORGE_DATABASE_URL=" + c.url}, "serve", "--config", c.config, "--node-id", "a")
	c.nodes["a"] = p
	p.AwaitReady(t, p.output)

	for kind, want := range map[string]struct{ state, output string }{
		"greet": {"discarded", "hello greet"},
		"ping":  {"completed", "ok"},
		"count": {"completed", "42"},
	} {
		stdout, stderr, code := c.forge("job", "enqueue", kind, "-o", "json")
		if code != 0 {
			t.Fatalf("enqueue %s: %s", kind, stderr)
		}
		id := decode[struct{ ID int64 }](t, stdout).ID
		eventually(t, kind+" has ended", func() bool {
			return c.number(`SELECT count(*) FROM river_job WHERE id = $1 AND state::text = $2`, id, want.state) == 1
		})
		stdout, _, _ = c.forge("job", "show", fmt.Sprint(id), "-o", "json")
		job := decode[jobstore.Job](t, stdout)
		if len(job.Attempts) != 1 || job.Attempts[0].DurationMS <= 0 || job.Attempts[0].NodeID != "a" {
			t.Fatalf("%s: attempts %+v", kind, job.Attempts)
		}
		attempt := job.Attempts[0]
		switch kind {
		case "greet":
			if attempt.ExitCode == nil || *attempt.ExitCode != 3 || job.LastError == "" {
				t.Errorf("greet: %+v, error %q", attempt, job.LastError)
			}
		case "ping":
			if attempt.StatusCode == nil || *attempt.StatusCode != 200 {
				t.Errorf("ping: %+v", attempt)
			}
		}
		logs, _, _ := c.forge("job", "logs", fmt.Sprint(id))
		if !strings.Contains(logs, want.output) {
			t.Errorf("%s printed %q; want %q in it", kind, logs, want.output)
		}
		if code, page, _ := get(listen, fmt.Sprintf("/jobs/%d", id)); code != 200 || !strings.Contains(string(page), want.output) {
			t.Errorf("the page of job %d (%s): %d, without its output", id, kind, code)
		}
	}
}

func TestListsAsJSON(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.start("a")
	_, term := c.leader(0)
	c.awaitTicks(term)
	c.awaitRoles("a")
	output := func(args ...string) string {
		stdout, stderr, code := c.forge(append(args, "-o", "json")...)
		if code != 0 {
			t.Fatalf("forge %v: exit %d %s", args, code, stderr)
		}
		return stdout
	}
	if leaders := decode[[]leaderstore.Leader](t, output("leader", "status")); len(leaders) != 3 || leaders[0].NodeID != "a" {
		t.Errorf("leaders: %+v", leaders)
	}
	if tenures := decode[[]leaderstore.Tenure](t, output("leader", "history", "--role", "scheduler")); len(tenures) != 1 {
		t.Errorf("history: %+v", tenures)
	}
	if nodes := decode[[]nodestore.Node](t, output("node", "list")); len(nodes) != 1 || nodes[0].State != "active" {
		t.Errorf("nodes: %+v", nodes)
	}
	if crons := decode[[]cronstore.Cron](t, output("cron", "list")); len(crons) != 1 || crons[0].Last == nil {
		t.Errorf("crons: %+v", crons)
	}
	if ticks := decode[[]cronstore.Tick](t, output("cron", "history", "second")); len(ticks) < 2 || ticks[0].JobID == 0 {
		t.Errorf("ticks: %+v", ticks)
	}
	next := decode[[]struct{ Tick, UTC time.Time }](t, output("cron", "next", "30 2 * * *", "--timezone", "Europe/Berlin",
		"--from", "2026-03-28T12:00:00Z", "-n", "1"))
	if len(next) != 1 || next[0].UTC.Format(time.RFC3339) != "2026-03-29T01:00:00Z" {
		t.Errorf("next: %+v", next)
	}
}

// A file that was superseded does not come back by itself, and does by apply.
func TestApplyGoesBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond)
	first := c.config
	second := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(second, []byte(strings.Replace(everySecond, `"second"`, `"other"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	inForce := func() string {
		var name string
		if err := c.pool.QueryRow(t.Context(), `SELECT name FROM forge_crons WHERE removed_at IS NULL`).Scan(&name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	c.start("a")
	c.config = second
	c.start("b")
	if name := inForce(); name != "second" {
		t.Fatalf("a node that started removed every cron; %s is in force", name)
	}
	c.wantOnPages("The file of b waits for forge apply --yes", "it would remove 1 of 1 crons (second)")
	if said := c.must("node", "list", "-o", "wide"); !strings.Contains(said, "waits for forge apply --yes: it would remove 1 of 1 crons (second)") {
		t.Errorf("node list: %s", said)
	}
	c.must("apply", "--yes", "--config", second)
	if name := inForce(); name != "other" {
		t.Fatalf("%s is in force after the new file", name)
	}
	eventually(t, "b no longer waits", func() bool { return c.node("b").ConfigWaiting == "" })
	c.config = first
	c.start("c")
	if name := inForce(); name != "other" {
		t.Fatalf("the old file came back by itself: %s", name)
	}
	if _, stderr, code := c.forge("apply", "--yes", "--config", first); code != 0 || stderr != "" {
		t.Fatalf("apply: %d %s", code, stderr)
	}
	if name := inForce(); name != "second" {
		t.Fatalf("%s is in force after apply", name)
	}
	third := filepath.Join(t.TempDir(), "forge.toml")
	rewrite(t, third, strings.Replace(everySecond, `["true"]`, `["date"]`, 1))
	if _, stderr, code := c.forge("apply", "--config", third); code != 0 ||
		stderr != "warning: no node defines job second as this file does: its runs wait until one has the file\n" {
		t.Errorf("apply of a file that no node has: %d %s", code, stderr)
	}
	waiting := c.instant(`SELECT max(applied_at) FROM forge_config`)
	eventually(t, "a run waits", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE created_at > $1 AND state = 'available'`, waiting) > 0
	})
	rewrite(t, first, strings.Replace(everySecond, `["true"]`, `["date"]`, 1))
	eventually(t, "the nodes that took the file over have run it", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE created_at > $1 AND state = 'completed'`, waiting) > 0
	})
	if n := c.number(`SELECT count(*) FROM river_job j JOIN forge_nodes n
		ON j.attempted_by[array_length(j.attempted_by, 1)] = n.node_id || '-' || n.incarnation
		WHERE j.created_at > $1 AND n.node_id = 'b'`, waiting); n != 0 {
		t.Errorf("%d runs on the node with another definition", n)
	}
}
