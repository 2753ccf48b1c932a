package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// A job on a killed node runs again on another; nothing that its first attempt
// started is left, and the lost attempt can be seen afterwards.
func TestJobOfAKilledNodeRunsAgain(t *testing.T) {
	t.Parallel()
	// The first attempt does not end by itself.
	endless, short := "2718."+unique(), "0.2718"+unique()
	c := newCluster(t, fmt.Sprintf(`
[jobs.long]
kind = "shell"
command = ["sh", "-c", "if [ $FORGE_ATTEMPT = 1 ]; then exec sleep %s; fi; exec sleep %s"]
`, endless, short))
	c.startAll("a", "b")
	c.leader(0)
	eventually(t, "both nodes are past their first heartbeat", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE last_heartbeat_at > started_at + interval '500 ms'`) == 2
	})
	c.must("job", "enqueue", "long")
	var node string
	eventually(t, "the job runs", func() bool {
		return c.pool.QueryRow(t.Context(), `
			SELECT n.node_id FROM river_job j JOIN forge_nodes n ON j.attempted_by[1] = n.node_id || '-' || n.incarnation
			WHERE j.state = 'running'`).Scan(&node) == nil
	})
	killed := time.Now()
	c.signal(node, syscall.SIGKILL)
	eventually(t, "a second attempt runs, or has run", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state IN ('running', 'completed') AND attempt = 2`) == 1
	})
	keepsPromise(t, "jobs of a crashed node", time.Since(killed))
	eventually(t, "it completes", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 2`) == 1
	})
	stdout, _, _ := c.forge("job", "show", "1")
	if !strings.Contains(stdout, "lost") || !strings.Contains(stdout, "completed") {
		t.Errorf("job show does not tell of both attempts:\n%s", stdout)
	}
	eventually(t, "no process of either attempt is left", func() bool {
		return len(processesWith(t, endless, short)) == 0
	})
}

// A job on a frozen node runs again on another. When the node wakes, its attempt ends and
// changes nothing.
func TestJobOfAFrozenNodeRunsAgain(t *testing.T) {
	t.Parallel()
	// The first attempt does not end by itself.
	endless, short := "2718."+unique(), "0.2718"+unique()
	c := newCluster(t, fmt.Sprintf(`
[jobs.long]
kind = "shell"
command = ["sh", "-c", "if [ $FORGE_ATTEMPT = 1 ]; then exec sleep %s; fi; exec sleep %s"]
`, endless, short))
	c.startProgram(forgeBinary(t), "s", allRoles)
	c.startProgram(forgeBinary(t), "w1", "FORGE_NODE_ROLES=worker")
	c.leader(0)
	c.must("job", "enqueue", "long")
	eventually(t, "the job runs", func() bool { return len(processesWith(t, endless)) > 0 })
	c.startProgram(forgeBinary(t), "w2", "FORGE_NODE_ROLES=worker")
	frozen := time.Now()
	c.signal("w1", syscall.SIGSTOP)
	eventually(t, "a second attempt runs, or has run", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state IN ('running', 'completed') AND attempt = 2`) == 1
	})
	keepsPromise(t, "jobs of a hung node", time.Since(frozen))
	const completed = `SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 2 AND attempted_by[2] LIKE 'w2-%'`
	eventually(t, "it completes", func() bool { return c.number(completed) == 1 })
	c.signal("w1", syscall.SIGCONT)
	eventually(t, "the node has joined again", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = 'w1' AND state = 'active' AND fenced_at IS NULL`) == 1
	})
	eventually(t, "no process of either attempt is left", func() bool { return len(processesWith(t, endless, short)) == 0 })
	if c.number(completed) != 1 {
		t.Error("the woken node changed the job")
	}
	w2 := c.nodes["w2"]
	c.stop("w2")
	if log := w2.output.String(); !strings.Contains(log, "jobs finished") || !strings.Contains(log, "completed=1") || strings.Contains(log, "job ran") {
		t.Errorf("the log does not have the job in a summary alone:\n%s", log)
	}
}

// The proxy of a living node restarts when its last heartbeat is already old. The node comes back,
// and its job runs on.
func TestProxyRestartRunsNoJobTwice(t *testing.T) {
	t.Parallel()
	// The node has one and a half heartbeat intervals to come back: less the outage, two seconds.
	c := newCluster(t, `
[cluster]
heartbeat_interval = "3s"
dead_threshold = "15s"
[jobs.long]
kind = "shell"
command = ["sleep", "12"]
`)
	c.startProgram(forgeBinary(t), "s", allRoles)
	proxy := pgtest.Proxy(t, c.url)
	c.nodes["w"] = launchProgram(t, forgeBinary(t), []string{"FORGE_NODE_ROLES=worker", "FORGE_DATABASE_URL=" + proxy.URL()},
		"serve", "--config", c.config, "--node-id", "w", "--listen", nodes.AnyPort)
	c.nodes["w"].AwaitReady(t, c.nodes["w"].output)
	c.leader(0)
	c.must("job", "enqueue", "long")
	eventually(t, "the job runs, and the last heartbeat is old", func() bool {
		return c.number(`
			SELECT count(*) FROM river_job AS j JOIN forge_nodes AS n ON n.node_id = 'w'
			WHERE j.state = 'running' AND n.last_heartbeat_at > n.started_at + interval '500 ms'
			  AND clock_timestamp() - n.last_heartbeat_at > interval '2550 ms'`) == 1
	})
	proxy.Cut()
	time.Sleep(2400 * time.Millisecond)
	proxy.Resume()
	eventually(t, "the job has ended", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE finalized_at IS NOT NULL`) == 1
	})
	if c.number(`SELECT attempt FROM river_job WHERE state = 'completed'`) != 1 {
		t.Error("the job ran again")
	}
}

// stuckCrons have a first run that does not end by itself. That of last has no
// attempt left after it; the second attempt of more ends when it is told to.
const stuckCrons = `
[jobs.last]
kind = "shell"
retry = { max_attempts = 1 }
command = ["sh", "-c", "if mkdir %[1]s/last; then exec sleep %[2]s; fi"]

[jobs.more]
kind = "shell"
retry = { max_attempts = 2 }
command = ["sh", "-c", "if mkdir %[1]s/more; then exec sleep %[2]s; fi; until [ -e %[1]s/go ]; do sleep 0.05; done"]

[[crons]]
name = "last"
schedule = "@every 1s"
job = "last"

[[crons]]
name = "more"
schedule = "@every 1s"
job = "more"
`

// With overlap skip an attempt on a dead node keeps no tick from firing. The run is
// over with its last attempt; as long as it has another one it is that which counts.
func TestAttemptOnAKilledNodeBlocksNoTick(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newCluster(t, fmt.Sprintf(stuckCrons, dir, "2718."+unique()))
	c.startProgram(forgeBinary(t), "s", "FORGE_NODE_ROLES=scheduler")
	c.startProgram(forgeBinary(t), "w1", "FORGE_NODE_ROLES=worker")
	c.leader(0)
	// A job is running before its command is: only the folders tell that the first
	// runs got as far as to be the ones that do not end.
	eventually(t, "both first runs", func() bool { return exists(filepath.Join(dir, "last")) && exists(filepath.Join(dir, "more")) })
	c.signal("w1", syscall.SIGKILL)
	c.startProgram(forgeBinary(t), "w2", "FORGE_NODE_ROLES=worker")
	const fired = `SELECT count(*) FROM forge_cron_ticks WHERE cron = $1 AND verdict = 'fired'`
	eventually(t, "a tick after the last attempt", func() bool { return c.number(fired, "last") > 1 })
	eventually(t, "a tick that the second attempt keeps from firing", func() bool {
		return c.number(`
			SELECT count(*) FROM forge_cron_ticks AS t JOIN river_job AS j ON j.kind = 'more' AND j.state = 'running' AND j.attempt = 2
			WHERE t.cron = 'more' AND t.verdict = 'skipped_overlap' AND t.tick > j.attempted_at`) > 0
	})
	if n := c.number(fired, "more"); n != 1 {
		t.Errorf("%d ticks fired beside a run with a second attempt", n-1)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a tick after the second attempt", func() bool { return c.number(fired, "more") > 1 })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
