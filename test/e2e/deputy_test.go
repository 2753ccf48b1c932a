package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// Nodes that try the locks every ten minutes: only a deputy takes over sooner.
const seldomChecks = `
[cluster.leader_election]
check_interval = "10m"
lease_duration = "10m"
refresh_interval = "5s"
`

// deputies lists the nodes whose second session waits for another's end.
func (c *cluster) deputies() (ids []string) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), `
SELECT coalesce(array_agg(DISTINCT split_part(application_name, ':', 3) ORDER BY split_part(application_name, ':', 3)), '{}')
FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE '%forge_await_session_end%' AND application_name LIKE 'forge:%'`).Scan(&ids); err != nil {
		c.t.Fatal(err)
	}
	return ids
}

// All deputies die; the node that was none of them becomes one, and sees the leader's
// end at once.
func TestDeadDeputiesAreReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, seldomChecks)
	c.startAll("a", "b", "c")
	leader, term := c.leader(0)
	eventually(t, "two deputies", func() bool { return len(c.deputies()) >= 2 })
	spare := c.startSpare("d", "e", "f", "g", "h")
	for id := range c.nodes {
		if id != leader && id != spare {
			c.signal(id, syscall.SIGKILL)
		}
	}
	eventually(t, spare+" watches the leader", func() bool {
		return c.number(`SELECT count(*) FROM pg_stat_activity s JOIN forge_leaders l ON l.role = 'scheduler' AND l.backend_pid = ANY (pg_blocking_pids(s.pid))
			WHERE s.query LIKE '%forge_await_session_end%' AND split_part(s.application_name, ':', 3) = $1`, spare) > 0
	})
	c.signal(leader, syscall.SIGKILL)
	if next, _ := c.leader(term); next != spare {
		t.Errorf("%s leads", next)
	}
}

// startSpare starts nodes until one of them is no deputy: chance decides who is.
func (c *cluster) startSpare(ids ...string) (spare string) {
	c.t.Helper()
	for _, spare = range ids {
		c.start(spare)
		time.Sleep(300 * time.Millisecond) // a deputy takes its place at once
		if !slices.Contains(c.deputies(), spare) {
			break
		}
	}
	return spare
}
