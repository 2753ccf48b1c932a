package e2e

import (
	"strings"
	"testing"
)

const pausedQueue = `
[queues.mail]

[jobs.send]
kind = "sql"
queue = "mail"
statement = "SELECT 1"
`

// An operator pauses one tenant's jobs: theirs wait on every node and after a failover, those of
// others run. The commands say what is paused, by whom and why, and what goes on.
func TestTenantIsPaused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, pausedQueue+steady)
	c.startAll("a", "b")
	said := c.must("queue", "pause", "mail", "--key", "tenant=acme", "--reason", "their import loops")
	if !strings.Contains(said, "mail: jobs with args.tenant=acme are paused; resume them with forge queue resume mail --key 'args.tenant=acme'") {
		t.Errorf("pause said %q", said)
	}
	held := c.enqueue("send", "--args", `{"tenant": "acme"}`)
	c.awaitState(c.enqueue("send", "--args", `{"tenant": "globex"}`), "completed")
	if why := c.must("job", "explain", held); !strings.Contains(why, "jobs of queue mail (args.tenant=acme) are paused since") || !strings.Contains(why, "forge queue resume mail --key 'args.tenant=acme' lets them go on") {
		t.Errorf("explain said %q", why)
	}
	if shown := c.must("queue", "show", "mail"); !strings.Contains(shown, "args.tenant=acme") || !strings.Contains(shown, ": their import loops") {
		t.Errorf("show said %q", shown)
	}
	id, term := c.leader(0)
	c.nodes[id].Kill()
	c.leader(term)
	c.awaitState(c.enqueue("send", "--args", `{"tenant": "globex"}`), "completed")
	if started := c.number(`SELECT count(*) FROM river_job WHERE args ->> 'tenant' = 'acme' AND attempt > 0`); started != 0 {
		t.Errorf("%d paused jobs have started", started)
	}
	if said := c.must("queue", "resume", "mail", "--key", "tenant=acme"); !strings.Contains(said, "mail: jobs with args.tenant=acme are resumed") {
		t.Errorf("resume said %q", said)
	}
	c.awaitState(held, "completed")
	c.refused(2, "queue", "pause", "mail", "--key", "acme")
	if events := c.must("events"); !strings.Contains(events, "args.tenant=acme") {
		t.Error("the events do not say which jobs were paused")
	}
}
