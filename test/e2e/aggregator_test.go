package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

const (
	watchedCluster = patient + `
[metrics]
scrape_interval = "1s"

[[alerts]]
name = "much_is_planned"
condition = "sum(forge_queue_depth{state='scheduled'}) > 4"
notify = ["pager"]

[http]
allow_receiver_cidrs = ["127.0.0.0/8"]

[notify.pager]
type = "webhook"
url = "%s"

[jobs.mark]
kind = "shell"
command = ["true"]

[[crons]]
name = "mark"
schedule = "@manual"
job = "mark"
`
	planSQL = `
INSERT INTO river_job (kind, args, max_attempts, state, scheduled_at)
SELECT 'later', '{}', 1, 'scheduled', now() + interval '1 year' FROM generate_series(1, 5)`

	// fallenSQL counts totals of counters that are less than they were.
	fallenSQL = `
SELECT count(*)
FROM (SELECT value, lag(value) OVER (PARTITION BY metric, labels ORDER BY at) AS before
      FROM forge_metrics_cluster
      WHERE metric LIKE '%\_total') AS totals
WHERE value < before`

	// gapSQL is the time between the last total of the terms up to one and the
	// first of the next, in milliseconds.
	gapSQL = `
SELECT (extract(epoch FROM min(at) FILTER (WHERE term > $1) - max(at) FILTER (WHERE term <= $1)) * 1000)::bigint
FROM forge_metrics_cluster`
)

// The leader of the metrics aggregator is killed while an alert fires, and all are
// killed before it ceases. Nobody is told twice that it fires; that it is over is
// told; and what the nodes had counted is in the totals.
func TestKilledAggregatorLosesNoAlertAndNoCount(t *testing.T) {
	t.Parallel()
	told := newPager(t)
	c := newCluster(t, fmt.Sprintf(watchedCluster, told.url))
	c.startAll("a", "b")
	c.awaitRoles("")
	for range 3 {
		c.must("cron", "trigger", "mark", "--config", c.config)
	}
	c.awaitRuns(3)
	eventually(t, "the list says of both nodes that they report", func() bool {
		return strings.Count(c.must("node", "list", "-o", "wide"), "reported ") == 2
	})
	c.exec(planSQL)
	fired := told.await(t, "much_is_planned", "firing", func(page) bool { return true })
	eventually(t, "the delivery is written down", func() bool {
		return c.number(`SELECT count(*) FROM forge_notifications WHERE state = 'delivered' AND NOT sending`) == 1
	})

	term := c.killAggregator()
	eventually(t, "the next leader sums and evaluates", func() bool {
		return c.number(`SELECT count(DISTINCT at) FROM forge_metrics_cluster WHERE term > $1`, term) > 2
	})
	t.Logf("%d ms between the last total of term %d and the first of the next", c.number(gapSQL, term), term)
	if n := c.number(`SELECT count(*) FROM forge_notifications`); n != 1 {
		t.Errorf("%d messages after a failover, want the first alone", n)
	}
	if n := c.number(`SELECT count(*) FROM forge_alerts WHERE state = 'firing' AND active_at = $1`, fired.StartsAt); n != 1 {
		t.Errorf("%d occurrences go on to fire since %v, want 1", n, fired.StartsAt)
	}

	term = c.killAggregator()
	c.exec(`DELETE FROM river_job WHERE kind = 'later'`) // while nobody looks
	c.start("c")
	over := told.await(t, "much_is_planned", "resolved", func(page) bool { return true })
	if pages := told.told("much_is_planned"); len(pages) != 2 || !over.StartsAt.Equal(fired.StartsAt) {
		t.Errorf("told %v, want one occurrence that fires and is over", pages)
	}
	c.must("cron", "trigger", "mark", "--config", c.config)
	c.awaitRuns(4)
	if n := c.number(fallenSQL); n != 0 {
		t.Errorf("%d totals of counters fell", n)
	}
	c.stopAll()
}

// awaitRuns waits until the totals have so many runs of the cron.
func (c *cluster) awaitRuns(count int64) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("the totals have %d runs", count), func() bool {
		return c.number(`
SELECT coalesce(max(value), 0)::bigint FROM forge_metrics_cluster
WHERE metric = 'forge_job_finished_total' AND labels = '{"kind": "mark", "outcome": "completed"}'`) == count
	})
}

// killAggregator kills the node that leads the metrics aggregator and returns its
// term.
func (c *cluster) killAggregator() (term int64) {
	c.t.Helper()
	var id string
	err := c.pool.QueryRow(c.t.Context(), `SELECT node_id, term FROM forge_leaders WHERE role = 'metrics_aggregator'`).Scan(&id, &term)
	if err != nil {
		c.t.Fatal(err)
	}
	c.signal(id, syscall.SIGKILL)
	<-c.nodes[id].done
	delete(c.nodes, id)
	return term
}
