package e2e

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/nodestore"
)

// rewrite replaces a file as editors and deployments do.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) node(id string) nodestore.Node {
	c.t.Helper()
	node, err := nodestore.New(c.pool).Get(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return node
}

// events returns the data of the events of a type, oldest first.
func (c *cluster) events(kind string) []string {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), `SELECT data::text FROM forge_events WHERE type = $1 ORDER BY id`, kind)
	if err != nil {
		c.t.Fatal(err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		c.t.Fatal(err)
	}
	return events
}

// wantMetric waits for a line of a node's /metrics.
func (c *cluster) wantMetric(id, line string) {
	c.t.Helper()
	eventually(c.t, line, func() bool {
		_, body, _ := get(c.nodes[id].listen(), "/metrics")
		return strings.Contains(string(body), "\n"+line+"\n")
	})
}

// A node that runs takes an edited file over: new crons and jobs at once,
// without an end for what runs; what needs a restart is said, and the rest of
// the file counts all the same.
func TestNodeReloadsEditedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, begun, told := filepath.Join(dir, "out"), filepath.Join(dir, "begun"), filepath.Join(dir, "told")
	text := everySecond + fmt.Sprintf(`
[jobs.slow]
kind = "shell"
command = ["sh", "-c", "touch %s; until [ -e %s ]; do sleep 0.1; done; echo old >> %s"]
`, begun, told, out)
	c := newCluster(t, text)
	c.startAll("a", "b")
	c.must("job", "enqueue", "slow")
	eventually(t, "the slow job runs", func() bool { return exists(begun) })
	edited := regexp.MustCompile("touch .* old").ReplaceAllString(text, "echo new") + `
[[crons]]
name = "added"
schedule = "@every 1s"
command = ["true"]
[queues.reports]
max_workers = 2
[node]
slots = 7
tags = { zone = "eu" }
[database]
pool_size = 19
`
	rewrite(t, c.config, edited)
	for _, id := range []string{"a", "b"} {
		eventually(t, id+" has taken the file over", func() bool { return c.node(id).Slots == 7 })
		node := c.node(id)
		if node.Queues["reports"] != 2 || node.Tags["zone"] != "eu" || !slices.Contains(node.Kinds, "added") ||
			node.ConfigError != "" || !slices.Equal(node.ConfigRestart, []string{"database.pool_size"}) {
			t.Errorf("row of %s: %+v", id, node)
		}
		c.wantMetric(id, `forge_config_reloads_total{result="success"} 1`)
	}
	eventually(t, "the new cron fires and its job is done", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'added' AND state = 'completed'`) > 0
	})
	c.must("job", "enqueue", "slow")
	eventually(t, "the second slow job is done", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'slow' AND state = 'completed'`) == 1
	})
	if err := os.WriteFile(told, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both slow jobs are done", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'slow' AND state = 'completed' AND attempt = 1`) == 2
	})
	if said, err := os.ReadFile(out); err != nil || string(said) != "new\nold\n" {
		t.Errorf("the job that came and the job that ran said %q, %v", said, err)
	}
	if events := c.events("config_reloaded"); len(events) != 2 || !strings.Contains(events[0], "database.pool_size") {
		t.Errorf("events: %v", events)
	}
	if n := len(c.events("config_applied")); n != 2 {
		t.Errorf("applied %d times, want twice: at the start and by one of the nodes", n)
	}
	c.signal("a", syscall.SIGHUP)
	c.wantMetric("a", `forge_config_reloads_total{result="success"} 2`)
	if n := len(c.events("config_reloaded")); n != 2 {
		t.Errorf("a file that did not change was taken over again: %d events", n)
	}
	c.settle()
	c.demandEveryTickOnce("second")
}

// A file that is invalid changes nothing, not even what in it is right, and is
// reported wherever somebody looks, until a right one comes.
func TestAnInvalidFileChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond)
	c.startAll("a", "b")
	before := c.node("a")
	rewrite(t, c.config, everySecond+`
[[crons]]
name = "added"
schedule = "@every 1s"
command = ["true"]
[[crons]]
name = "broken"
schedule = "61 * * * *"
command = ["true"]
[node]
slots = 7
tags = 3
[notify.hook]
type = "webhook"
url = "https://hooks.example.com/"
http_config = { tls_config = { ca_file = "/nowhere/ca.pem" } }
`)
	eventually(t, "both nodes have refused the file", func() bool {
		return c.node("a").ConfigError != "" && c.node("b").ConfigError != ""
	})
	after := c.node("a")
	if !strings.HasPrefix(after.ConfigError, "3 errors, the first: ") || !strings.Contains(after.ConfigError, "minute: 61 is out of range") {
		t.Errorf("reported: %s", after.ConfigError)
	}
	if after.ConfigHash != before.ConfigHash || after.Slots != before.Slots || !maps.Equal(after.Definitions, before.Definitions) {
		t.Errorf("the node changed: %+v", after)
	}
	if n := c.number(`SELECT count(*) FROM forge_crons`); n != 1 {
		t.Errorf("%d crons, want the one of before", n)
	}
	c.wantMetric("a", "forge_config_reload_success 0")
	c.wantMetric("a", `forge_config_reloads_total{result="failure"} 1`)
	events := c.events("config_rejected")
	if len(events) != 2 || !strings.Contains(events[0], "minute: 61 is out of range") || !strings.Contains(events[0], "node.tags: wrong type") ||
		!strings.Contains(events[0], "tls_config.ca_file: the file cannot be used: no such file or directory") {
		t.Errorf("events: %v", events)
	}
	eventually(t, "the log says it", func() bool {
		log := c.nodes["a"].output.String()
		return strings.Contains(log, "configuration refused") && strings.Contains(log, "minute: 61 is out of range")
	})
	c.wantOnPages("refused its edited file", "minute: 61 is out of range")
	if said := c.must("node", "list", "-o", "wide"); !strings.Contains(said, "minute: 61 is out of range") {
		t.Errorf("node list: %s", said)
	}
	c.wantRefusals("a", 1, "3 errors, the first: ", "minute: 61 is out of range")
	c.wantRefusals("b", 1, "3 errors, the first: ", "minute: 61 is out of range")

	c.signal("a", syscall.SIGHUP)
	c.wantMetric("a", `forge_config_reloads_total{result="failure"} 2`)
	if err := os.Remove(c.config); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a file that is gone is reported", func() bool { return strings.Contains(c.node("a").ConfigError, "not found") })
	rewrite(t, c.config, "")
	eventually(t, "an empty file is reported", func() bool { return strings.Contains(c.node("a").ConfigError, "the file is empty") })
	c.wantRefusals("a", 4, "the file is empty")
	rewrite(t, c.config, everySecond)
	for _, id := range []string{"a", "b"} {
		eventually(t, id+" has the right file again", func() bool { return c.node(id).ConfigError == "" })
		c.wantMetric(id, "forge_config_reload_success 1")
	}
	c.settle()
	c.demandEveryTickOnce("second")
}

// wantRefusals waits until forge audit prints that a node has refused its edited file so
// often, the last time for a reason with these texts.
func (c *cluster) wantRefusals(id string, count int, texts ...string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("forge audit prints %d refusals of %s, the last with %q", count, id, texts), func() bool {
		said := c.must("audit", "--action", "config.reload", "--outcome", "refused", "-o", "wide", "--no-headers")
		var refusals []string // the newest first
		for line := range strings.Lines(said) {
			if strings.Contains(line, " node:"+id+" ") && strings.Contains(line, c.config) {
				refusals = append(refusals, line)
			}
		}
		return len(refusals) == count && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(refusals[0], text) })
	})
}

// wantOnPages waits until every node's overview says it.
func (c *cluster) wantOnPages(texts ...string) {
	c.t.Helper()
	for id, p := range c.nodes {
		eventually(c.t, fmt.Sprintf("the page of %s says %q", id, texts), func() bool {
			code, body, _ := get(p.listen(), "/")
			said := html.UnescapeString(string(body))
			return code == http.StatusOK && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(said, text) })
		})
	}
}

// rolled is a file of one-second crons whose jobs write to a ledger of their
// own, outside the database.
func rolled(out, word string, crons ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `
[cron_defaults]
catch_up = "all"
catch_up_limit = 1000
overlap = "allow"
[metrics]
scrape_interval = "1s"
[jobs.note]
kind = "shell"
command = ["sh", "-c", "echo $FORGE_CRON $FORGE_TICK $FORGE_ATTEMPT %s >> %s"]
`, word, out)
	for _, cron := range crons {
		name, schedule, _ := strings.Cut(cron, " ")
		fmt.Fprintf(&text, "[[crons]]\nname = %q\nschedule = %q\njob = \"note\"\n", name, schedule)
	}
	return text.String()
}

// An edited file that is rolled out node by node loses and doubles nothing, also
// when a node with the old file is killed and comes back in the middle.
func TestARollingRestartLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	c := newCluster(t, rolled(out, "old", "steady @every 1s", "slower @every 1s", "gone @every 1s"))
	former := c.config
	edited := filepath.Join(dir, "forge.toml")
	rewrite(t, edited, rolled(out, "new", "steady @every 1s", "slower @every 2s", "added @every 1s"))
	c.startAll("a", "b", "c")
	c.tickOnce()

	c.restart("a", edited)
	applied := c.instant(`SELECT max(applied_at) FROM forge_config`)
	c.tickOnce()
	victim, _ := c.leader(0)
	if victim == "a" {
		victim = "b"
	}
	c.signal(victim, syscall.SIGKILL)
	<-c.nodes[victim].done
	c.config = former
	c.start(victim)
	c.tickOnce()
	if hash := c.node(victim).ConfigHash; hash == c.node("a").ConfigHash || c.number(`SELECT count(*) FROM forge_config`) != 2 {
		t.Fatal("the node with the old file did not come back with it")
	}
	c.wantDrift(2, victim, "crons +gone ~slower -added; jobs ~note")
	c.restart("b", edited)
	c.restart("c", edited)
	c.wantDrift(0, "", "")
	c.tickOnce()
	for _, cron := range []string{"steady", "slower", "added"} { // the end of the count
		c.must("cron", "pause", cron)
	}
	eventually(t, "every tick of before is recorded", func() bool {
		return c.number(`SELECT count(*) FROM forge_crons WHERE paused_at < next_tick`) == 3
	})
	eventually(t, "every job is done", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state <> 'completed'`) == 0
	})
	c.stopAll()
	if again := c.instant(`SELECT max(applied_at) FROM forge_config`); !again.Equal(applied) {
		t.Errorf("the cluster was turned back at %s", again)
	}
	c.demandRolled(out, c.instant(`SELECT removed_at FROM forge_crons WHERE name = 'gone'`))
}

// wantDrift waits until the cluster's metrics count so many nodes with another
// configuration; what differs on one of them is told by its pages and by node
// list.
func (c *cluster) wantDrift(nodes int, id, differs string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d nodes drift", nodes), func() bool {
		for _, p := range c.nodes {
			_, body, _ := get(p.listen(), "/metrics/cluster")
			if !strings.Contains(string(body), fmt.Sprintf("\nforge_config_drifting_nodes %d\n", nodes)) {
				return false
			}
		}
		return true
	})
	if nodes == 0 {
		return
	}
	c.wantOnPages(differs)
	said := c.must("node", "list", "-o", "wide")
	i := slices.IndexFunc(strings.Split(said, "\n"), func(line string) bool {
		return strings.HasPrefix(line, id+" ") && strings.Contains(line, differs)
	})
	if i < 0 {
		c.t.Errorf("node list does not say what differs: %s", said)
	}
}

func (c *cluster) restart(id, config string) {
	c.t.Helper()
	c.stop(id)
	c.config = config
	c.start(id)
}

// tickOnce waits for a tick of now.
func (c *cluster) tickOnce() {
	c.t.Helper()
	now := c.instant(`SELECT clock_timestamp()`)
	eventually(c.t, "a tick", func() bool {
		return c.number(`SELECT count(*) FROM forge_cron_ticks WHERE cron = 'steady' AND tick > $1`, now) > 0
	})
}

// demandRolled counts anew, from the clock and the two files alone, what had to
// be due before and after the edit, and compares the ledger and what the jobs
// wrote with it.
func (c *cluster) demandRolled(out string, edited time.Time) {
	c.t.Helper()
	written := readNotes(c.t, out)
	first := c.instant(`SELECT min(tick) FROM forge_cron_ticks`)
	before := func(at time.Time) bool { return !at.After(edited) }
	for cron, due := range map[string]func(time.Time) bool{
		"steady": func(time.Time) bool { return true },
		"slower": func(at time.Time) bool { return before(at) || at.Unix()%2 == 0 },
		"gone":   before,
		"added":  func(at time.Time) bool { return !before(at) },
	} {
		paused := c.instant(`SELECT coalesce(paused_at, removed_at) FROM forge_crons WHERE name = $1`, cron)
		ledger := map[time.Time]tickRow{}
		for _, tick := range c.ticks(cron) {
			ledger[tick.Tick.UTC()] = tick
		}
		for at := first; !at.After(paused); at = at.Add(time.Second) {
			tick, recorded := ledger[at]
			delete(ledger, at)
			label := cron + " at " + at.Format(time.TimeOnly)
			switch {
			case recorded != due(at):
				c.t.Errorf("%s: due %v, in the ledger %v", label, due(at), recorded)
			case !recorded:
			case cron == "gone" && tick.Verdict == "skipped_excluded" && tick.Jobs == 0: // removed before it could fire
			case tick.Verdict != "fired" && tick.Verdict != "caught_up", tick.Jobs != 1:
				c.t.Errorf("%s: %s with %d jobs", label, tick.Verdict, tick.Jobs)
			default:
				written.demandOnce(c.t, cron, at, edited)
			}
		}
		for at, tick := range ledger {
			if tick.Verdict != "skipped_paused" {
				c.t.Errorf("%s at %s: %s outside of the count", cron, at.Format(time.TimeOnly), tick.Verdict)
			}
		}
	}
	for key := range written {
		c.t.Errorf("a run that nobody counted: %s", key)
	}
}

// notes are what the jobs wrote: attempts and words by cron and tick.
type notes map[string][][2]string

func readNotes(t *testing.T, path string) notes {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := notes{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		key := words[0] + " " + words[1]
		found[key] = append(found[key], [2]string{words[2], words[3]})
	}
	return found
}

// demandOnce checks that a tick ran once, or once more after the node of an
// attempt was killed, and under the definition in force.
func (n notes) demandOnce(t *testing.T, cron string, at, applied time.Time) {
	t.Helper()
	key := cron + " " + at.Format(time.RFC3339)
	lines := n[key]
	delete(n, key)
	if len(lines) == 0 {
		t.Errorf("%s did not run", key)
	}
	attempts := map[string]bool{}
	for _, line := range lines {
		if attempts[line[0]] {
			t.Errorf("%s ran twice in attempt %s", key, line[0])
		}
		attempts[line[0]] = true
		if at.After(applied) && line[1] != "new" {
			t.Errorf("%s ran as the %s file has it", key, line[1])
		}
	}
}
