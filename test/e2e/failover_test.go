package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// everySecond is a cluster with one cron each second; its runs may overlap, so
// that every tick is due to fire.
const everySecond = `
[[crons]]
name = "second"
schedule = "@every 1s"
overlap = "allow"
catch_up = "all"
catch_up_limit = 1000
command = ["true"]
`

// kills is how often the leader dies.
const kills = 10

func TestKilledLeaderLosesAndDoublesNoTick(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.startAll("a", "b", "c")
	id, term := c.leader(0)
	c.awaitTicks(term)
	var takeovers, firsts []time.Duration
	for range kills {
		killed := time.Now()
		c.signal(id, syscall.SIGKILL)
		dead := id
		id, term = c.leader(term)
		takeovers = append(takeovers, time.Since(killed))
		eventually(t, "a tick of the new term", func() bool {
			return c.number(`SELECT count(*) FROM forge_cron_ticks WHERE term = $1`, term) > 0
		})
		firsts = append(firsts, time.Since(killed))
		<-c.nodes[dead].done
		c.start(dead)
	}
	c.settle()
	ticks := c.demandEveryTickOnce("second")
	late := make([]float64, len(ticks))
	for i, tick := range ticks {
		late[i] = tick.Late
	}
	slices.Sort(late)
	t.Logf("%d ticks over %d kills; kill to its successor's first tick median %v, worst %v; lateness p50 %.1f ms, p99 %.1f ms",
		len(ticks), kills, median(firsts), slices.Max(firsts), late[len(late)/2], late[len(late)*99/100])
	keepsPromise(t, "crash", median(takeovers))
	if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'scheduler' AND end_reason = 'crashed'`); n != kills {
		t.Errorf("%d tenures ended as crashed; want %d", n, kills)
	}
}

// settle stops the nodes after every job of before has run.
func (c *cluster) settle() {
	c.t.Helper()
	asked := c.instant(`SELECT clock_timestamp()`)
	eventually(c.t, "all due jobs are done", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state <> 'completed' AND created_at < $1`, asked) == 0
	})
	c.stopAll()
}

func TestTerminatedLeaderHandsOverAndDrains(t *testing.T) {
	t.Parallel()
	told := filepath.Join(t.TempDir(), "told") // the slow jobs end when it is there
	c := newCluster(t, everySecond+unhurried+fmt.Sprintf(`
[node]
slots = 3 # no node has room for all slow jobs
[jobs.slow]
kind = "shell"
command = ["sh", "-c", "until [ -e %s ]; do sleep 0.1; done"]
`, told))
	c.startAll("a", "b")
	id, term := c.leader(0)
	for range 4 {
		if out, errs, code := c.forge("job", "enqueue", "slow"); code != 0 {
			t.Fatalf("enqueue: %d %s %s", code, out, errs)
		}
	}
	eventually(t, "slow jobs run", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'slow' AND state = 'running'`) == 4
	})
	c.awaitTicks(term)
	c.signal(id, syscall.SIGTERM)
	_, next := c.leader(term)
	if err := os.WriteFile(told, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.awaitExit(id)
	if n := c.number(`SELECT count(*) FROM river_job WHERE kind = 'slow' AND state = 'completed' AND attempt = 1
		AND attempted_by[1] LIKE $1 || '-%'`, id); n == 0 {
		t.Error("the drained node did not finish what it ran")
	}
	if n := c.number(`SELECT count(*) FROM forge_leader_history
		WHERE role = 'scheduler' AND term = $1 AND end_reason = 'resigned'`, term); n != 1 {
		t.Error("the tenure did not end as resigned")
	}
	if n := c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = $1 AND state = 'left'`, id); n != 1 {
		t.Error("the drained node did not leave")
	}
	c.awaitTicks(next)
	c.settle()
	c.demandEveryTickOnce("second")
}

// handOvers is how often the leader is told to end.
const handOvers = 3

// A leader that is told to end hands over at once, and never waits for a check or a
// lease.
func TestTerminatedLeaderHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.startAll("a", "b")
	id, term := c.leader(0)
	var took []time.Duration
	for range handOvers {
		c.awaitTicks(term)
		before := id
		began := time.Now()
		c.signal(before, syscall.SIGTERM)
		id, term = c.leader(term)
		took = append(took, time.Since(began))
		c.awaitExit(before)
		c.start(before)
	}
	keepsPromise(t, "hand-over on SIGTERM", median(took))
}

// A stopped process cannot give its locks back; the server takes them. When it
// wakes, nothing that it writes counts.
func TestStoppedLeaderIsReplacedAndRejoins(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+steady)
	c.startAll("a", "b", "c")
	id, term := c.leader(0)
	c.awaitTicks(term)
	began := time.Now()
	c.signal(id, syscall.SIGSTOP)
	_, second := c.leader(term)
	took := time.Since(began)
	keepsLease(t, "hang", took, steadyLease)
	eventually(t, "the stopped node is fenced", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = $1 AND state = 'dead' AND fenced_at IS NOT NULL`, id) == 1
	})
	c.signal(id, syscall.SIGCONT)
	eventually(t, "it has joined again under a new incarnation", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = $1 AND state = 'active' AND fenced_at IS NULL`, id) == 1
	})
	if n := c.number(`SELECT count(*) FROM forge_cron_ticks WHERE term = $1
		AND recorded_at > (SELECT acquired_at FROM forge_leader_history WHERE role = 'scheduler' AND term = $2)`, term, second); n != 0 {
		t.Errorf("the stopped leader recorded %d ticks after its successor began", n)
	}
	if n := c.number(`SELECT count(*) FROM forge_leader_history
		WHERE role = 'scheduler' AND term = $1 AND end_reason = 'lease_expired'`, term); n != 1 {
		t.Error("the tenure did not end as lease_expired")
	}
	c.settle()
	c.demandEveryTickOnce("second")
}

func TestPostgresRestartsHeal(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	c := clusterOn(t, server.URL(), everySecond+unhurried)
	c.startAll("a", "b")
	_, term := c.leader(0)
	for _, mode := range []devcluster.StopMode{devcluster.StopFast, devcluster.StopImmediate, devcluster.StopKill} {
		server.Restart(mode)
		c.pool.Reset()
		accepts := time.Now()
		_, term = c.leader(term)
		keepsPromise(t, "PostgreSQL restart, from accepting connections", time.Since(accepts))
		c.awaitTicks(term)
	}
	c.settle()
	c.demandEveryTickOnce("second")
	if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE end_reason = 'database_lost'`); n == 0 {
		t.Error("no tenure ended as database_lost")
	}
}

// Each role's leader works: ticks fire, totals are written, old jobs go.
func TestEveryRoleWorks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried+`
[metrics]
scrape_interval = "1s"
`)
	c.exec(`INSERT INTO river_job (kind, state, max_attempts, args, finalized_at)
		VALUES ('old', 'completed', 1, '{}', now() - interval '25 h'), ('young', 'completed', 1, '{}', now() - interval '23 h')`)
	c.startAll("a", "b")
	eventually(t, "cluster totals", func() bool {
		return c.number(`SELECT count(*) FROM forge_metrics_cluster WHERE metric = 'forge_cron_runs_total' AND value > 0`) > 0
	})
	eventually(t, "the old job is gone", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'old'`) == 0
	})
	if n := c.number(`SELECT count(*) FROM river_job WHERE kind = 'young'`); n != 1 {
		t.Error("a job inside its retention is gone")
	}
	for id, p := range c.nodes {
		eventually(t, "/metrics/cluster of "+id+" counts runs and both nodes", func() bool {
			_, body, _ := get(p.listen(), "/metrics/cluster")
			return strings.Contains(string(body), `forge_cron_runs_total{cron="second"}`) && strings.Contains(string(body), `forge_nodes{state="active"} 2`)
		})
	}
	eventually(t, "every role is led", func() bool {
		return c.number(`SELECT count(*) FROM forge_leaders WHERE node_id IS NOT NULL AND lease_until > now()`) == 3
	})
}

func TestTenNodesStartAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	c := clusterOn(t, pgtest.EmptyURL(t), everySecond)
	started := make([]*process, 10)
	for i := range started {
		id := string(rune('a' + i))
		started[i] = launch(t, []string{"FORGE_DATABASE_URL=" + c.url, "FORGE_DATABASE_POOL_SIZE=8"},
			"serve", "--config", c.config, "--node-id", id, "--listen", nodes.AnyPort)
	}
	eventually(t, "ten active nodes", func() bool {
		var active int
		err := c.pool.QueryRow(context.Background(), `SELECT count(*) FROM forge_nodes WHERE state = 'active'`).Scan(&active)
		return err == nil && active == len(started)
	})
	for i, p := range started {
		select {
		case <-p.done:
			t.Errorf("node %d ended: %v\n%s", i, p.Err(), p.output)
		default:
		}
	}
}
