package e2e

import (
	"encoding/json"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// Output is seen while the job runs, stays when its node is killed, can be read
// while no node is there, and is followed into the attempt on the next node.
func TestOutputIsFollowedAcrossAKilledNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[jobs.talk]
kind = "shell"
env = { API_TOKEN = "opensesame" }
command = ["sh", "-c", """
echo attempt $FORGE_ATTEMPT begins with open; printf 'token open'; printf '%s\\n' "${API_TOKEN#open}"
if [ $FORGE_ATTEMPT = 1 ]; then exec sleep 31415.9; fi
"""]
`)
	c.start("a")
	c.leader(0)
	if _, stderr, code := c.forge("job", "enqueue", "talk"); code != 0 {
		t.Fatalf("enqueue: %s", stderr)
	}
	c.awaitState("1", "running") // whoever follows before is told that it has not run
	follow := launch(t, []string{"FORGE_DATABASE_URL=" + c.url}, "job", "logs", "1", "--follow")
	const first = "attempt 1 begins with open\ntoken [redacted]\n"
	eventually(t, "the follower sees the first attempt", func() bool { return strings.Contains(follow.output.String(), first) })
	if _, page, _ := get(c.nodes["a"].listen(), "/jobs/1"); !strings.Contains(string(page), "token [redacted]") {
		t.Error("the page of the running job is without its output")
	}

	c.signal("a", syscall.SIGKILL)
	<-c.nodes["a"].done
	if out, stderr, code := c.forge("job", "logs", "1"); code != 0 || out != first {
		t.Errorf("without a node: exit %d, %q %s", code, out, stderr)
	}
	out, _, _ := c.forge("job", "logs", "1", "-o", "json")
	var text string
	for _, chunk := range decode[[]jobstore.LogChunk](t, out) {
		text += chunk.Chunk
	}
	if text != first {
		t.Errorf("as JSON: %s", out)
	}

	c.start("b")
	select {
	case <-follow.done:
	case <-time.After(nodes.WaitTimeout):
		t.Fatalf("the follower goes on: %s", follow.output)
	}
	if got, want := follow.output.String(), first+"attempt 2:\nattempt 2 begins with open\ntoken [redacted]\n"; follow.Err() != nil || got != want {
		t.Errorf("followed: %v, %q, want %q", follow.Err(), got, want)
	}
	c.wantLogs(c.nodes["b"].listen(), first)
}

// wantLogs asks for the first attempt of job 1 in every way, and for what is not
// there.
func (c *cluster) wantLogs(listen, first string) {
	c.t.Helper()
	if out, stderr, code := c.forge("job", "logs", "1", "--attempt", "1", "--follow"); code != 0 || out != first {
		c.t.Errorf("of an attempt that is over: exit %d, %q %s", code, out, stderr)
	}
	streamed, _, _ := c.forge("job", "logs", "1", "--attempt", "1", "--follow", "-o", "json")
	_, body, _ := get(listen, "/api/v1/jobs/1/logs?follow=true&attempt=1")
	for _, stream := range []string{streamed, string(body)} {
		var text string
		for line := range strings.Lines(stream) {
			var chunk jobstore.LogChunk
			if err := json.Unmarshal([]byte(line), &chunk); err != nil || chunk.Attempt != 1 {
				c.t.Errorf("line %q: %v", line, err)
			}
			text += chunk.Chunk
		}
		if text != first {
			c.t.Errorf("streamed %q", stream)
		}
	}
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"99", 4, "no job 99"},
		{"1 --attempt 3", 4, "has no attempt 3"},
		{"1 --attempt 3 --follow", 4, "has no attempt 3"},
		{"1 --attempt 0", 2, "of at least 1"},
		{"x", 2, "positive number"},
		{"1 -o xml", 2, "unknown output"},
		{"1 --follow -o yaml", 2, "does not stream"},
	} {
		args := append([]string{"job", "logs"}, strings.Fields(test.args)...)
		if out, stderr, code := c.forge(args...); code != test.code || !strings.Contains(stderr, test.want) || out != "" {
			c.t.Errorf("%s: exit %d, %q %q", test.args, code, out, stderr)
		}
	}
}

// outageNoise has jobs end, totals reported and roles renewed while the database is away.
const outageNoise = everySecond + `
[metrics]
scrape_interval = "1s"

[[crons]]
name = "slow"
schedule = "@every 1s"
overlap = "allow"
command = ["sleep", "5"]
`

// While its database is away for 20 seconds, a node that is probed and read logs at most
// mostLines lines. The warnings that were held back are counted in the log.
func TestLogOfALongOutageIsShort(t *testing.T) {
	t.Parallel()
	const outage, mostLines = 20 * time.Second, 40
	server := pgtest.Server(t)
	c := clusterOn(t, server.URL(), outageNoise)
	c.startAll("a", "b")
	_, term := c.leader(0)
	c.awaitTicks(term)
	lines := func(p *process) int { return strings.Count(p.output.String(), "\n") }

	before := map[string]int{}
	for id, p := range c.nodes {
		before[id] = lines(p)
	}
	server.Stop(devcluster.StopImmediate)
	for end := time.Now().Add(outage); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, p := range c.nodes {
			for _, path := range []string{"/readyz", "/leader/scheduler", "/cluster/health", "/"} {
				get(p.listen(), path)
			}
		}
	}
	for id, p := range c.nodes {
		logged := lines(p) - before[id]
		if t.Logf("%s logged %d lines", id, logged); logged == 0 || logged > mostLines {
			t.Errorf("%s logged %d lines in %s, want 1 to %d:\n%s", id, logged, outage, mostLines, p.output)
		}
	}
	server.Start()
	_, term = c.leader(term)
	c.awaitTicks(term)
	for id, p := range maps.Clone(c.nodes) {
		c.stop(id)
		if !strings.Contains(p.output.String(), " repeated=") {
			t.Errorf("%s does not count the warnings that it held back:\n%s", id, p.output)
		}
	}
}
