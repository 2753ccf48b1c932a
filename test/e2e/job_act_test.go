package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const actJobs = `
[node]
slots = 2
[jobs.short]
kind = "shell"
command = ["true"]
[jobs.broken]
kind = "shell"
command = ["false"]
retry = { max_attempts = 2, backoff = "1h" }
`

// demand runs a command and demands its exit code, and a text in what it prints.
func (c *cluster) demand(want int, says string, args ...string) (stdout string) {
	c.t.Helper()
	stdout, stderr, code := c.forge(args...)
	if code != want || !strings.Contains(stdout+stderr, says) {
		c.t.Fatalf("forge %s: exit %d, want %d and %q\n%s%s", strings.Join(args, " "), code, want, says, stdout, stderr)
	}
	return stdout
}

func (c *cluster) enqueue(args ...string) (id string) {
	c.t.Helper()
	out := c.demand(0, "", append([]string{"job", "enqueue", "-o", "json"}, args...)...)
	return fmt.Sprint(decode[struct{ ID int64 }](c.t, out).ID)
}

func (c *cluster) awaitState(id, state string) {
	c.t.Helper()
	eventually(c.t, "job "+id+" is "+state, func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE id = $1::text::bigint AND state::text = $2`, id, state) == 1
	})
}

// A job that runs is cancelled on whichever node it is, by a command that speaks
// to the database alone.
func TestCancelReachesEveryNode(t *testing.T) {
	t.Parallel()
	endless := "3141." + unique()
	c := newCluster(t, actJobs+fmt.Sprintf("[jobs.long]\nkind = \"shell\"\ncommand = [\"sleep\", %q]\n", endless))
	c.startAll("a", "b")
	var ids []string
	for range 4 {
		ids = append(ids, c.enqueue("long"))
	}
	for _, id := range ids {
		c.awaitState(id, "running")
	}
	if n := c.number(`SELECT count(DISTINCT attempted_by[1]) FROM river_job WHERE state = 'running'`); n != 2 {
		t.Fatalf("%d nodes run the four jobs", n)
	}
	c.demand(6, "it is running already", "job", "retry", ids[0])
	c.demand(6, "it is running; cancel it first", "job", "discard", ids[0])
	c.demand(124, "is running after 1ms", "job", "wait", ids[0], "--timeout", "1ms")
	c.demand(0, "runs and is told to stop", append([]string{"job", "cancel"}, ids...)...)
	for _, id := range ids {
		c.demand(1, "is cancelled", "job", "wait", id, "--timeout", "2m")
		job := decode[jobstore.Job](t, c.demand(0, "", "job", "show", id, "-o", "json"))
		if len(job.Attempts) != 1 || job.Attempts[0].Outcome != jobstore.OutcomeCancelled {
			t.Errorf("job %s: %+v", id, job.Attempts)
		}
	}
	t.Logf("from the wish to the end of the attempt: %d ms at most", c.number(`
SELECT max(extract(milliseconds FROM (metadata #>> '{forge:attempt:1,started_at}')::timestamptz
    + (metadata #>> '{forge:attempt:1,duration_ms}')::float8 * interval '1 ms' - (metadata ->> 'cancel_attempted_at')::timestamptz))::bigint
FROM river_job`))
	if left := processesWith(t, endless); len(left) != 0 {
		t.Errorf("processes left: %v", left)
	}
}

// What operators do with jobs, with the exit codes that scripts rely on.
func TestOperatingJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, actJobs)
	c.start("a")
	done := c.enqueue("short", "--unique", "once")
	c.demand(0, "is completed", "job", "wait", done, "--timeout", "2m")
	c.demand(0, "not enqueued: job "+done+" is the same and is completed", "job", "enqueue", "short", "--unique", "once")
	c.demand(6, "cannot cancel job "+done+" (short): it is completed already", "job", "cancel", done)
	c.demand(0, "was completed and is available", "job", "retry", done)
	eventually(t, "it completes again", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 2`) == 1
	})

	later := c.enqueue("short", "--at", "2099-01-01T00:00:00Z", "--priority", "4", "--queue", "slow")
	c.demand(0, "was scheduled and is cancelled", "job", "cancel", later)
	c.demand(1, "was cancelled", "job", "wait", later)
	c.demand(4, "no job 424242", "job", "wait", "424242")
	c.demand(4, "no job 424242", "job", "cancel", "424242")
	c.demand(6, "no job 424242", "job", "cancel", "424242", later)

	broken := c.enqueue("broken")
	c.awaitState(broken, "retryable")
	c.demand(0, "was retryable and is available", "job", "retry", broken)
	c.demand(1, "was discarded: exit status 1", "job", "wait", broken, "--timeout", "2m")

	for range 3 {
		c.enqueue("short", "--at", "2099-01-01T00:00:00Z")
	}
	c.demand(0, "would discard 3 jobs", "job", "discard", "--filter", "kind:sh* state:scheduled", "--dry-run")
	c.demand(0, `"kind": "broken"`, "job", "list", "--filter", `kind:brok* node:a error:"exit status"`, "-o", "json")
	c.demand(2, `filter, character 6: found "1s", want > or < and a duration`, "job", "list", "--filter", "took:1s")
	c.demand(0, "would discard 3 jobs", "job", "discard", "--state", "scheduled", "--kind", "short", "--dry-run")
	c.demand(2, "discard 3 jobs? Confirmation needs a terminal", "job", "discard", "--kind", "short")
	if n := c.number(`SELECT count(*) FROM river_job WHERE state = 'scheduled'`); n != 3 {
		t.Fatalf("%d jobs are still scheduled", n)
	}
	c.demand(0, "discarded 3 jobs", "job", "discard", "--kind", "short", "--yes")
	c.demand(0, "discarded 0 jobs", "job", "discard", "--kind", "short", "--yes")
	c.demand(0, `"jobs": 4`, "job", "retry", "--queue", "default", "--dry-run", "-o", "json")
	c.demand(2, "which jobs?", "job", "cancel")
	c.demand(2, "not by both", "job", "cancel", done, "--kind", "short")
	c.demand(2, "it is completed already", "job", "cancel", "--state", "completed")
	c.demand(2, "want one of", "job", "retry", "--state", "lost")

	address := c.nodes["a"].listen()
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"jobs/" + done + "/retry", "", 200, `"was":"completed","state":"available"`},
		{"jobs/" + later + "/discard", "", 409, "it is cancelled already"},
		{"jobs/424242/cancel", "", 404, "no such job"},
		{"jobs", `{"kind": "short", "args": {"n": 1}, "unique": "twice"}`, 201, `"kind":"short","verdict":"added","state":"available","queue":"default"`},
		{"jobs", `{"kind": "short", "args": {"n": 1}, "unique": "twice"}`, 200, `"existing":true`},
		{"jobs", `{"kind": "shrt"}`, 422, `did you mean \"short\"?`},
		{"bulk/jobs/retry", `{"kind": "broken"}`, 200, `"jobs":1,"changed":1,"up_to":` + broken + `,"dry_run":false`},
	} {
		if code, answer := post(t, address, "/api/v1/"+step.path, step.body); code != step.status || !strings.Contains(answer, step.want) {
			t.Errorf("%s: %d %s", step.path, code, answer)
		}
	}

	c.demand(0, "job_discarded", "events", "--type", "job_discarded,job_retried,job_cancelled")
	const told = `SELECT count(*) FROM forge_events WHERE data ->> 'by' LIKE ANY (ARRAY ['%@%', 'the API from 127.0.0.1']) AND type `
	if acts, added := c.number(told+`IN ('job_discarded', 'job_retried', 'job_cancelled')`), c.number(told+`= 'job_enqueued'`); acts != 6 || added != 7 {
		t.Errorf("the event log says who of %d actions and %d additions, want 6 and 7", acts, added)
	}
}

// Where a job goes is explained while nodes are up, while they drain, and when
// every one of them is gone.
func TestExplainWithoutNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, actJobs+`
[jobs.render]
kind = "shell"
command = ["true"]
capability = "gpu"
`)
	c.startAll("a", "b")
	c.leader(0)
	ran, render := c.enqueue("short"), c.enqueue("render")
	c.awaitState(ran, "completed")
	c.demand(0, "attempt 1 of ", "job", "explain", ran)
	c.demand(0, "waits: no node has capability gpu; nodes have general.", "job", "explain", render)
	c.demand(0, "", "node", "drain", "b")
	out := c.demand(0, "lacks capability gpu", "job", "explain", render)
	if !strings.Contains(out, "is draining; lacks capability gpu") {
		t.Errorf("node b is not draining in\n%s", out)
	}
	code, body, _ := get(c.nodes["a"].listen(), "/api/v1/jobs/"+render+"/explain")
	if code != 200 || !strings.Contains(string(body), `"sentence":"Job `+render+` (render) waits: no node has capability gpu`) {
		t.Errorf("the API says %d %s", code, body)
	}
	for id := range c.nodes {
		c.signal(id, syscall.SIGKILL)
	}
	eventually(t, "both nodes count as dead", func() bool {
		out, _, code := c.forge("job", "explain", render)
		return code == 0 && strings.Contains(out, "no node is alive") && strings.Count(out, "is dead: nothing was heard from it for") == 2
	})
	c.demand(4, "no job 424242", "job", "explain", "424242")
}
