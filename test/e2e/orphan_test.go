package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// A job on a killed node runs again on another; nothing that its first attempt
// started is left, and the lost attempt can be seen afterwards.
func TestJobOfAKilledNodeRunsAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[jobs.long]
kind = "shell"
command = ["sleep", "2.71828"]
`)
	c.startAll("a", "b")
	c.leader(0)
	if _, stderr, code := c.forge("job", "enqueue", "long"); code != 0 {
		t.Fatalf("enqueue: %s", stderr)
	}
	var node string
	eventually(t, 15*time.Second, "the job runs", func() bool {
		return c.pool.QueryRow(t.Context(), `
			SELECT n.node_id FROM river_job j JOIN forge_nodes n ON j.attempted_by[1] = n.node_id || '-' || n.incarnation
			WHERE j.state = 'running'`).Scan(&node) == nil
	})
	killed := time.Now()
	c.signal(node, syscall.SIGKILL)
	eventually(t, 20*time.Second, "a second attempt runs", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'running' AND attempt = 2`) == 1
	})
	t.Logf("killed to running again: %v", time.Since(killed))
	eventually(t, 20*time.Second, "it completes", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 2`) == 1
	})
	stdout, _, _ := c.forge("job", "show", "1")
	if !strings.Contains(stdout, "lost") || !strings.Contains(stdout, "completed") {
		t.Errorf("job show does not tell of both attempts:\n%s", stdout)
	}
	eventually(t, 10*time.Second, "no process of either attempt is left", func() bool {
		return len(processesWith(t, "2.71828")) == 0
	})
}
