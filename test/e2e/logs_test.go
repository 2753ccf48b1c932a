package e2e

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
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
	case <-time.After(nodes.Patience):
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
		{"1 --attempt 0", 2, "from 1 on"},
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
