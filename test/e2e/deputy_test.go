package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
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

// After an outage of the database that is longer than the dead threshold the heartbeats of
// all nodes are late. The leader has its deputies again long before a minute has passed.
func TestLeaderHasDeputiesSoonAfterLongOutage(t *testing.T) {
	t.Parallel()
	const outage, within = 8 * time.Second, 30 * time.Second
	server := pgtest.Server(t)
	c := clusterOn(t, server.URL(), "")
	c.startAll("a", "b", "c")
	_, term := c.leader(0)
	eventually(t, "two deputies", func() bool { return len(c.deputies()) == 2 })
	server.Stop(devcluster.StopImmediate)
	time.Sleep(outage)
	server.Start()
	began := time.Now()
	c.leader(term)
	eventually(t, "two deputies again", func() bool { return len(c.deputies()) == 2 })
	if took := time.Since(began); took > within {
		t.Errorf("the leader had two deputies after %s, want at most %s", took, within)
	} else {
		t.Logf("two deputies after %s", took)
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
