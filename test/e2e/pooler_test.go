package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// byLease is a cluster for a database that is only reached through a pooler in
// transaction mode.
const byLease = steady + `strategy = "lease"
`

// behindPooler lets the nodes and commands reach the cluster's database through
// PgBouncer; the tests look at it directly.
func (c *cluster) behindPooler(mode string, settings ...string) {
	c.t.Helper()
	c.url = pgtest.StartBouncer(c.t, c.url, mode, settings...).URL()
}

// With nothing but a pooler in transaction mode, and fewer connections than
// clients, the cluster elects, fires, works and replaces its leaders.
func TestLeaseClusterBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+byLease)
	c.behindPooler("transaction", "default_pool_size = 12")
	c.startAll("a", "b", "c")
	id, term := c.leader(0)
	c.awaitTicks(term)
	if n := c.number(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 0 {
		t.Errorf("%d roles' locks are held", n)
	}

	killed := time.Now()
	c.signal(id, syscall.SIGKILL)
	<-c.nodes[id].done
	delete(c.nodes, id)
	next, second := c.leader(term)
	keepsLease(t, "hang", time.Since(killed), steadyLease) // nobody sees a process die
	c.tenureEnded(term, "lease_expired")
	c.awaitTicks(second)

	stopped := time.Now()
	c.signal(next, syscall.SIGSTOP)
	last, third := c.leader(second)
	keepsLease(t, "hang", time.Since(stopped), steadyLease)
	c.tenureEnded(second, "lease_expired")
	c.awaitTicks(third)
	c.signal(next, syscall.SIGCONT)

	c.stop(last)
	_, fourth := c.leader(third)
	c.tenureEnded(third, "resigned")
	c.awaitTicks(fourth)
	if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'scheduler' AND gap < interval '0'`); n != 0 {
		t.Errorf("%d terms began before their predecessor's end", n)
	}
	c.settle()
	c.demandEveryTickOnce("second")
	if n := c.number(`SELECT count(*) FROM forge_cron_ticks k JOIN forge_leader_history h ON h.role = 'scheduler' AND h.term > k.term
		WHERE k.recorded_at > h.acquired_at`); n != 0 {
		t.Errorf("%d ticks of terms that were over", n)
	}
}

// What notifications tell elsewhere arrives without them: hand-overs, changes of
// crons, cancellations, queues that go on.
func TestOperatorsBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+byLease+`
[jobs.slow]
kind = "shell"
command = ["sleep", "600"]
queue = "slow"
[queues.slow]
`)
	c.behindPooler("transaction")
	c.startAll("a", "b")
	id, term := c.leader(0)
	c.awaitTicks(term)
	if moved := c.handsOver("leader", "transfer", "scheduler", "--to", other(id), "--config", c.config); moved.Term <= term {
		t.Errorf("transferred to %+v", moved)
	}

	c.must("cron", "pause", "second", "--config", c.config)
	eventually(t, "the leader leaves the paused cron alone", func() bool {
		return c.number(`SELECT count(*) FROM forge_crons WHERE next_tick < now() - interval '1500 ms'`) == 1
	})
	fired := c.number(`SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired'`)
	c.must("cron", "resume", "second", "--config", c.config)
	eventually(t, "the leader sees that it goes on", func() bool {
		return c.number(`SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired'`) > fired
	})

	c.exec(`INSERT INTO river_queue (name, paused_at, updated_at) VALUES ('slow', now(), now())
		ON CONFLICT (name) DO UPDATE SET paused_at = now()`)
	c.must("job", "enqueue", "slow", "--config", c.config)
	c.exec(`UPDATE river_queue SET paused_at = NULL`)
	eventually(t, "the job runs once its queue goes on", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'slow' AND state = 'running'`) == 1
	})
	c.exec(`UPDATE river_job SET metadata = jsonb_set(metadata, '{cancel_attempted_at}', to_jsonb(now())) WHERE kind = 'slow'`)
	eventually(t, "the running job is cancelled", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'slow' AND state = 'cancelled'`) == 1
	})
	for id, p := range c.nodes {
		if out := p.output.String(); strings.Contains(out, "interrupted") || strings.Contains(out, "unsupported") {
			t.Errorf("%s complains:\n%s", id, out)
		}
	}
	c.stopAll()
}

// A cluster that elects by locks does not start behind a pooler in transaction
// mode, on either of its addresses, and says what to do.
func TestAdvisoryNodeRefusesATransactionPooler(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond)
	direct := c.url
	c.behindPooler("transaction")
	for name, env := range map[string][]string{
		"database.url":        {"FORGE_DATABASE_URL=" + c.url},
		"database.leader_url": {"FORGE_DATABASE_URL=" + direct, "FORGE_DATABASE_LEADER_URL=" + c.url},
	} {
		p := launch(t, env, "serve", "--config", c.config, "--node-id", "a", "--listen", nodes.AnyPort)
		select {
		case <-p.done:
		case <-time.After(nodes.WaitTimeout):
			t.Fatalf("%s: the node runs behind a pooler in transaction mode", name)
		}
		if out := p.output.String(); p.Err() == nil || !strings.Contains(out, `strategy = "lease"`) || !strings.Contains(out, "straight to") {
			t.Errorf("%s: %v\n%s", name, p.Err(), out)
		}
	}
	if n := c.number(`SELECT count(*) FROM forge_leaders WHERE node_id IS NOT NULL`); n != 0 {
		t.Errorf("%d roles are led", n)
	}
}

// Through a pooler in session mode everything works as without one.
func TestClusterBehindASessionPooler(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.behindPooler("session")
	c.startAll("a", "b")
	id, term := c.leader(0)
	c.awaitTicks(term)
	c.signal(id, syscall.SIGKILL)
	<-c.nodes[id].done
	delete(c.nodes, id)
	_, next := c.leader(term)
	c.awaitTicks(next)
	c.settle()
	c.demandEveryTickOnce("second")
}
