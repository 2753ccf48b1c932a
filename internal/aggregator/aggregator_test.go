package aggregator_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	interval    = 10 * time.Millisecond
	waitTimeout = time.Minute
	started     = "forge_job_started_total"
	running     = "forge_job_running"
)

func TestSumsSurviveRestartsAndLeaders(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "00000000000000aa")
	b := c.start("b", "00000000000000bb")
	a.count(5)
	b.count(7)
	stop := c.lead(1)
	c.await(started, 12)
	c.await(running, 2)

	a.crash()
	c.await(running, 1) // the gauge is dropped, the counter is kept
	c.await(started, 12)
	stop()

	a = c.start("a", "00000000000000a2")
	a.count(1)
	stop = c.lead(2)
	c.await(started, 13)
	a.end()
	a = c.start("a", "00000000000000a3")
	a.count(100)
	c.await(started, 113)
	c.await(running, 2)
	stop()

	points := c.points(started)
	for i := 1; i < len(points); i++ {
		if points[i].Value < points[i-1].Value {
			t.Errorf("the sum fell from %v to %v", points[i-1], points[i])
		}
	}
	if first, last := points[0], points[len(points)-1]; first.Term != 1 || last.Term != 2 {
		t.Errorf("terms go from %d to %d, want 1 to 2", first.Term, last.Term)
	}
}

// A new leader sums at once, whatever the interval: at most the sum of the interval
// in which its predecessor died is missing.
func TestNewLeaderSumsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.sums = 24 * time.Hour
	counted := metrics.New("v0")
	counted.JobStarted.WithLabelValues("k").Add(5)
	c.startWith("a", "00000000000000aa", counted)
	c.awaitRow(`SELECT EXISTS (SELECT FROM forge_metrics_nodes)`)
	for term := int64(1); term <= 2; term++ {
		stop := c.lead(term)
		c.awaitRow(fmt.Sprintf(`SELECT EXISTS (SELECT FROM forge_metrics_cluster WHERE metric = '%s' AND value = 5 AND term = %d)`, started, term))
		stop()
	}
}

// Jobs enqueued by commands and with SQL are counted once, by the node that reads them first.
func TestEnqueuedByCommandsIsCountedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "00000000000000aa")
	defer a.end()
	defer c.start("b", "00000000000000bb").end()
	defer c.lead(1)()
	for total := 5.0; total <= 10; total += 5 {
		if err := jobstore.New(c.pool).NoteEnqueued(t.Context(), []string{"k", "k", "k"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.pool.Exec(t.Context(), `SELECT forge_enqueue_many('[{"kind": "k"}, {"kind": "k"}]')`); err != nil {
			t.Fatal(err)
		}
		c.await("forge_job_enqueued_total", total)
	}
}

// An orderly end reports the counts since the last report.
func TestLastReport(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.interval = time.Hour
	a := c.start("a", "00000000000000aa")
	c.awaitRow("SELECT EXISTS (SELECT FROM forge_metrics_nodes)")
	a.count(3)
	a.end()
	defer c.lead(1)()
	c.await(started, 3)
}

// A dead node's last report says that it leads until the report expires; its lease
// ends earlier.
func TestExpiredLeaseHasNoLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "00000000000000aa")
	defer a.end()
	a.metrics.SetLead("scheduler", "a", metrics.Lead{Since: time.Now(), TrustedUntil: time.Now().Add(time.Hour)})
	c.exec(`INSERT INTO forge_leaders (role, node_id, incarnation, term, lease_until)
		VALUES ('scheduler', 'a', '00000000000000aa', 1, clock_timestamp() + interval '1 hour')`)
	defer c.lead(1)()
	leads := func(want float64) {
		t.Helper()
		c.awaitLabels(metrics.LeaderIsLeaderName, map[string]string{"role": "scheduler"}, want)
	}
	leads(1)
	c.exec(`UPDATE forge_leaders SET lease_until = clock_timestamp() WHERE role = 'scheduler'`)
	leads(0)
	c.exec(`UPDATE forge_leaders SET lease_until = clock_timestamp() + interval '1 hour' WHERE role = 'scheduler'`)
	leads(1)
	c.exec(`UPDATE forge_leaders SET node_id = NULL WHERE role = 'scheduler'`)
	leads(0)
}

// A second registration of one process does not count its counters twice.
func TestSameProcessNewIncarnation(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "00000000000000aa")
	a.count(4)
	a.end()
	a = c.startWith("a", "00000000000000a2", a.metrics)
	defer a.end()
	a.count(1)
	defer c.lead(1)()
	c.await(started, 5)
}

func TestFencedNodeReportsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "00000000000000aa")
	a.count(4)
	a.end()
	c.exec(`UPDATE forge_nodes SET incarnation = '00000000000000a2'`)
	a = c.run("a", "00000000000000aa", metrics.New("v0"))
	a.count(1000)
	a.end() // it has tried at least twice
	defer c.lead(1)()
	c.await(started, 4)
}

func TestRetire(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for node, count := range map[string]float64{"a": 2, "b": 3, "c": 4} {
		n := c.start(node, "000000000000000"+node)
		n.count(count)
		n.metrics.NodeJobs.Finished.WithLabelValues(node, "completed").Add(count)
		n.end()
	}
	// b is old and gone; c is old but its node is alive.
	c.exec(`UPDATE forge_nodes SET state = 'dead' WHERE node_id IN ('a', 'b')`)
	c.exec(`UPDATE forge_metrics_nodes SET at = at - interval '25 hours' WHERE node_id IN ('b', 'c')`)
	stop := c.lead(1)
	c.awaitRow(`SELECT array_agg(node_id ORDER BY node_id) = '{"",a,c}' FROM forge_metrics_nodes`)
	stop()
	c.exec(`UPDATE forge_metrics_nodes SET at = at - interval '25 hours' WHERE node_id = 'a'`)
	stop = c.lead(2)
	c.awaitRow(`SELECT array_agg(node_id ORDER BY node_id) = '{"",c}' FROM forge_metrics_nodes`)
	stop()
	defer c.lead(3)()
	c.awaitTerm(3)
	c.await(started, 9)
	// The totals have the attempts of a node that is there, and forget those of others.
	c.awaitLabels("forge_node_job_finished_total", map[string]string{"node_id": "c", "outcome": "completed"}, 4)
	c.awaitRow(`SELECT count(*) = 0 FROM forge_metrics_cluster WHERE metric = 'forge_node_job_finished_total' AND labels ->> 'node_id' IN ('a', 'b') AND term = 3`)
}

// Hazards of a cluster whose roles are all up are in the totals and in the gauges
// that the leader exports.
func TestCountsHazards(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("a", "00000000000000aa").end()
	c.exec(`INSERT INTO river_queue (name, paused_at, updated_at) VALUES ('p', now() - interval '3 days', now()), ('gone', NULL, now())`)
	c.exec(`INSERT INTO river_job (kind, args, max_attempts, queue, scheduled_at) VALUES ('k', '{}', 1, 'p', now() - interval '2 h')`)
	c.exec(`INSERT INTO forge_events (type, at) VALUES ('x', now() + interval '1 h')`)
	c.exec(`UPDATE forge_metrics_nodes SET samples = samples || jsonb_build_object('clock', at + interval '90 s')`)
	stop := c.lead(1)
	defer stop()
	for _, want := range []struct {
		name, label, value string
		least, most        float64
	}{
		{metrics.QueuePausedName, "queue", "p", 3 * 86400, 4 * 86400},
		{metrics.QueueOldestName, "queue", "p", 7200, 10800},
		{metrics.QueuePausedName, "queue", "gone", 0, 0},
		{metrics.QueueOldestName, "queue", "gone", 0, 0},
		{metrics.SetBackName, "", "", 3000, 3600},
		{metrics.NodeClockName, "node_id", "a", 89.9, 90.1},
		{metrics.SnapshotName, "holder", "prepared", 0, 0},
		{metrics.TransactionName, "holder", "prepared", 0, 0},
	} {
		labels := map[string]string{}
		if want.label != "" {
			labels[want.label] = want.value
		}
		exported := func() float64 { return testutil.ToFloat64(c.metrics.Cluster[want.name].With(labels)) }
		c.until(func() bool { return exported() >= want.least && exported() <= want.most }, func() {
			t.Fatalf("%s%v is %v, want %v to %v", want.name, labels, exported(), want.least, want.most)
		})
	}
	c.exec(`DELETE FROM river_queue WHERE name = 'gone'`)
	c.until(func() bool { return testutil.CollectAndCount(c.metrics.Cluster[metrics.QueuePausedName]) == 1 }, func() {
		t.Fatal("a queue that is gone is still exported")
	})
}

func TestCountsJobsAndNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("a", "00000000000000aa").end()
	c.exec(`INSERT INTO forge_nodes (node_id, incarnation, state) VALUES ('b', '00000000000000bb', 'draining')`)
	c.exec(`INSERT INTO forge_nodes (node_id, incarnation, last_heartbeat_at) VALUES ('silent', '00000000000000cc', now() - interval '17 min')`)
	c.exec(`INSERT INTO river_queue (name, updated_at) VALUES ('empty', now())`)
	c.exec(`INSERT INTO river_job (kind, args, max_attempts, queue, state, finalized_at) VALUES
		('k', '{}', 1, 'q', 'available', NULL), ('k', '{}', 1, 'q', 'available', NULL),
		('k', '{}', 1, 'q', 'running', NULL), ('k', '{}', 1, 'q', 'completed', now())`)
	c.exec(`INSERT INTO forge_config (hash, applied_by, body) VALUES ('new', 'b', '{}')`)
	c.exec(`UPDATE forge_nodes SET config_hash = CASE node_id WHEN 'b' THEN 'new' ELSE 'old' END`)
	stop := c.lead(1)
	defer stop()
	c.awaitLabels(metrics.ConfigDriftName, nil, 1)
	c.awaitLabels(metrics.QueueDepthName, map[string]string{"queue": "q", "state": "available"}, 2)
	c.awaitLabels(metrics.QueueDepthName, map[string]string{"queue": "q", "state": "running"}, 1)
	c.awaitLabels(metrics.QueueDepthName, map[string]string{"queue": "empty", "state": "available"}, 0)
	c.awaitLabels(metrics.NodesName, map[string]string{"state": "active"}, 1)
	c.awaitLabels(metrics.NodesName, map[string]string{"state": "draining"}, 1)
	c.awaitLabels(metrics.NodesName, map[string]string{"state": "dead"}, 1)
	c.until(func() bool {
		return testutil.ToFloat64(c.metrics.Cluster[metrics.QueueDepthName].WithLabelValues("q", "available")) == 2
	}, func() {
		t.Fatal("the leader does not export a depth of 2") // it does once the sum is committed
	})
	c.exec(`DELETE FROM river_job`)
	c.awaitLabels(metrics.QueueDepthName, map[string]string{"queue": "q", "state": "available"}, 0)
	stop()
	if got := testutil.CollectAndCount(c.metrics.Cluster[metrics.QueueDepthName]); got != 0 {
		t.Errorf("after its term the leader exports %d depths", got)
	}
}

func TestDeposedLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("a", "00000000000000aa").end()
	c.acquire(2)
	old := fence(1)
	old.Refused = c.metrics.LeaderFencedWrites.WithLabelValues(old.Role, old.NodeID)
	err := c.aggregator().Lead(t.Context(), old)
	if !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("Lead of an old term = %v, want ErrDeposed", err)
	}
	if got := testutil.ToFloat64(c.metrics.LeaderFencedWrites.WithLabelValues("metrics_aggregator", "leader")); got != 1 {
		t.Errorf("%v fenced writes are counted, want 1", got)
	}
	points, err := aggregator.NewStore(c.pool).Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(points) != 0 {
		t.Errorf("a deposed leader wrote %v", points)
	}
}

func TestLeadContinuesAfterErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`ALTER TABLE forge_metrics_cluster RENAME TO away`)
	defer c.lead(1)()
	c.awaitRow(`SELECT EXISTS (SELECT FROM pg_stat_database WHERE datname = current_database() AND xact_rollback > 0)`)
	c.exec(`ALTER TABLE away RENAME TO forge_metrics_cluster`)
	c.awaitLabels(metrics.NodesName, map[string]string{"state": "dead"}, 0)
}

// A report says when its counters started, even if the node has a new incarnation.
func TestReportsSayWhenCountersBegan(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	counted := metrics.New("v0")
	counted.Began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, incarnation := range []string{"00000000000000aa", "00000000000000ab"} {
		node := c.startWith("a", incarnation, counted)
		c.awaitRow(fmt.Sprintf(`SELECT EXISTS (SELECT FROM forge_metrics_nodes
			WHERE incarnation = '%s' AND (samples ->> 'began')::timestamptz = '2026-03-01 12:00Z')`, incarnation))
		node.end()
	}
}

// The doctor compares the nodes' clocks, which are part of their reports.
func TestClocks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.start("a", "00000000000000aa")
	var clocks []aggregator.Clock
	c.until(func() bool {
		var err error
		if clocks, err = aggregator.NewStore(c.pool).Clocks(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(clocks) > 0
	}, func() { t.Fatal("no node has said what time it is") })
	if clocks[0].NodeID != "a" || clocks[0].Ahead.Abs() > time.Minute {
		t.Errorf("clocks = %+v", clocks)
	}
	node.end() // its next report would be correct again
	c.exec(`UPDATE forge_metrics_nodes SET samples = samples || jsonb_build_object('clock', at + interval '2 hours')`)
	clocks, err := aggregator.NewStore(c.pool).Clocks(t.Context())
	if err != nil || len(clocks) != 1 || clocks[0].Ahead != 2*time.Hour {
		t.Errorf("a clock two hours ahead: %+v, %v", clocks, err)
	}
	c.exec(`UPDATE forge_nodes SET state = 'left'`)
	if clocks, err := aggregator.NewStore(c.pool).Clocks(t.Context()); err != nil || len(clocks) != 0 {
		t.Errorf("the clock of a node that left: %+v, %v", clocks, err)
	}
}

// After the database's clock was set back, no sum is written between older ones: the counter
// would fall, as if it had restarted.
func TestSumsWaitForClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "00000000000000aa")
	a.count(7)
	c.exec(`INSERT INTO forge_metrics_cluster (metric, labels, at, value, term)
		VALUES ('` + started + `', '{"kind": "k"}', clock_timestamp() + interval '2 seconds', 5, 0)`)
	defer c.lead(1)()
	c.await(started, 7)
	if points := c.points(started); points[0].Term != 0 {
		t.Errorf("%v is before the sum of the term before", points[0])
	}
	c.awaitRow(`SELECT count(*) > 10 FROM forge_metrics_cluster WHERE term = 1`) // all series, once the wait is over
}
