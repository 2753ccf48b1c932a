package e2e

import (
	"testing"
	"time"
)

const (
	// waitingSQL counts the deputies that wait, and freshSQL those among them that
	// have just begun to.
	waitingSQL = `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE '%forge_await_session_end%' AND wait_event_type = 'Lock'`
	freshSQL = waitingSQL + ` AND clock_timestamp() - xact_start < interval '100 ms'`

	// most is how much longer than by itself anything may take beside the waiters: a
	// second, and some room for a busy machine.
	most = 1500 * time.Millisecond
	// tries is how often that is tried, each time at the worst moment: the machine
	// may be slow, a waiter that waits for too long is so every time.
	tries = 20
)

// Whoever waits for a leader's end does so in short slices: a statement that waits
// for older snapshots, or cleans up behind them, is through within a second.
func TestWaitersDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond)
	c.exec(`CREATE TABLE bulk AS SELECT n FROM generate_series(1, 20000) n`)
	alone := c.took(c.buildIndex)
	c.startAll("a", "b", "c")
	c.leader(0)
	eventually(t, "two deputies wait", func() bool { return c.number(waitingSQL) >= 2 })

	c.soon("CREATE INDEX CONCURRENTLY", alone, c.buildIndex)
	c.soon("VACUUM", 0, func() {
		c.exec(`DELETE FROM bulk`)
		eventually(t, "VACUUM has removed what was deleted", func() bool {
			c.exec(`VACUUM bulk`)
			return c.number(`SELECT pg_relation_size('bulk')`) == 0
		})
		c.exec(`INSERT INTO bulk SELECT n FROM generate_series(1, 20000) n`)
	})
	c.stopAll()
}

func (c *cluster) buildIndex() {
	c.exec(`CREATE INDEX CONCURRENTLY bulk_n ON bulk (n)`)
	c.exec(`DROP INDEX CONCURRENTLY bulk_n`)
}

func (*cluster) took(work func()) time.Duration {
	began := time.Now()
	work()
	return time.Since(began)
}

// soon demands that the work takes little longer than it does alone, begun right
// after a deputy has begun to wait.
func (c *cluster) soon(what string, alone time.Duration, work func()) {
	c.t.Helper()
	var longer time.Duration
	for range tries {
		eventually(c.t, "a deputy has just begun to wait", func() bool { return c.number(freshSQL) > 0 })
		longer = c.took(work) - alone
		c.t.Logf("%s: %v longer than by itself", what, longer)
		if longer < most {
			return
		}
	}
	c.t.Errorf("%s was held back by %v; want less than %v", what, longer, most)
}
