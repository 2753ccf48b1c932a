package aggregator_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// past contains twenty minutes of sums until two hours ago: a sawtooth gauge, a
// counter that increases by 2 each time and restarts once, and a histogram.
const past = `
INSERT INTO forge_metrics_cluster (metric, labels, at, value, histogram, term)
SELECT s.metric, s.labels::jsonb, h.hour + i * interval '15 seconds', s.value, s.histogram, 1
FROM (SELECT date_trunc('hour', now()) - interval '2 hours' AS hour) AS h, generate_series(0, 79) AS i,
LATERAL (VALUES
    ('saw', '{"k": "v"}', i % 4, NULL::jsonb),
    ('rise_total', '{}', CASE WHEN i < 40 THEN 2 * i ELSE 2 * (i - 39) END, NULL),
    ('times_seconds', '{}', i, jsonb_build_object('s', 3 * i, 'b', jsonb_build_object('5', i)))
) AS s (metric, labels, value, histogram)`

func TestRollups(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(past)
	c.exec(`INSERT INTO forge_metrics_cluster (metric, at, value, term)
		SELECT 'late_total', at, 7, 1 FROM forge_metrics_cluster
		WHERE metric = 'saw' AND at > (SELECT min(at) FROM forge_metrics_cluster) + interval '5 minutes'`)
	stop := c.lead(1)
	c.awaitRow(`SELECT count(*) = 1 FROM forge_metrics_rollups WHERE step = 3600 AND metric = 'rise_total'`)
	stop()

	for step, want := range map[aggregator.Step][]aggregator.Row{
		aggregator.Minute:      {{Value: 1.5, Greatest: 3, Last: 3, Covered: 60}, {Value: 6}, {Value: 3}},
		aggregator.FiveMinutes: {{Value: 1.5, Greatest: 3, Last: 3, Covered: 300}, {Value: 38}, {Value: 19}},
	} {
		var got []aggregator.Row
		for _, metric := range []string{"saw", "rise_total", "times_seconds"} {
			rows := c.history(metric, step)
			if len(rows) < 4 {
				t.Fatalf("%s has %d windows of %s", metric, len(rows), step)
			}
			got = append(got, rows[0])
		}
		for i, row := range got {
			if row.Value != want[i].Value || i == 0 && (row.Greatest != 3 || row.Least != 0 || row.Covered != want[0].Covered) {
				t.Errorf("the first window of %s is %+v, want %+v", step, row, want[i])
			}
		}
		if h := got[2].Histogram; h == nil || h.Sum != 3*want[2].Value || h.Buckets["5"] != want[2].Value {
			t.Errorf("the first histogram of %s is %+v", step, h)
		}
	}
	// 39 steps of 2, then 40 of them from 0.
	if hour := c.history("rise_total", aggregator.Hour); len(hour) != 1 || hour[0].Value != 158 || hour[0].Last != 80 {
		t.Errorf("the hour is %+v, want a rise of 158", hour)
	}
	if hour := c.history("late_total", aggregator.Hour); len(hour) != 1 || hour[0].Value != 7 {
		t.Errorf("the hour in which a counter began is %+v, want a rise of 7", hour)
	}
}

// A new leader writes the windows that an earlier leader did not write, with the
// same content.
func TestRollupsSurviveLeaders(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(past)
	const done = `SELECT count(*) = 3 FROM forge_metrics_rollups
		WHERE step = 3600 AND metric IN ('saw', 'rise_total', 'times_seconds')`
	stop := c.lead(1)
	c.awaitRow(done)
	stop()
	read := func() (all []aggregator.Row) {
		for _, step := range aggregator.Steps {
			for _, metric := range []string{"saw", "rise_total", "times_seconds"} {
				all = append(all, c.history(metric, step)...)
			}
		}
		return all
	}
	want := read()
	// The state after a leader was killed in the fourteenth minute.
	c.exec(`DELETE FROM forge_metrics_rollups
		WHERE at + step * interval '1 second' > (SELECT min(at) FROM forge_metrics_cluster) + interval '14 minutes'`)
	if len(read()) == len(want) {
		t.Fatal("nothing was taken away")
	}
	stop = c.lead(2)
	c.awaitRow(done)
	stop()
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("the next leader wrote other windows (-first +next):\n%s", diff)
	}
}

func TestHistogramsSurviveRestarts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "00000000000000aa")
	a.metrics.JobWait.WithLabelValues("k").Observe(.015625)
	a.metrics.JobWait.WithLabelValues("k").Observe(400)
	a.end()
	a = c.start("a", "00000000000000a2")
	a.metrics.JobWait.WithLabelValues("k").Observe(.015625)
	b := c.start("b", "00000000000000bb")
	b.metrics.JobWait.WithLabelValues("k").Observe(2)
	defer c.lead(1)()
	c.await("forge_job_wait_seconds", 4)

	server := httptest.NewRecorder()
	handler, err := aggregator.Exposition(c.pool, c.metrics.Series())(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	handler.ServeHTTP(server, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics/cluster", nil))
	for _, want := range []string{
		`# TYPE forge_job_wait_seconds histogram`,
		`forge_job_wait_seconds_bucket{kind="k",le="0.025"} 2`,
		`forge_job_wait_seconds_bucket{kind="k",le="2.5"} 3`,
		`forge_job_wait_seconds_bucket{kind="k",le="+Inf"} 4`,
		`forge_job_wait_seconds_sum{kind="k"} 402.03125`,
		`forge_job_wait_seconds_count{kind="k"} 4`,
	} {
		if !strings.Contains(server.Body.String(), want+"\n") {
			t.Errorf("%q is missing in:\n%s", want, server.Body)
		}
	}
}

func TestNodeThatStoppedReporting(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "00000000000000aa")
	b := c.start("b", "00000000000000bb")
	defer c.lead(1)()
	of := func(node string) map[string]string { return map[string]string{"node_id": node} }
	c.awaitLabels(metrics.NodeReportingName, of("a"), 1)
	c.awaitLabels(metrics.NodeReportingName, of("b"), 1)
	b.end() // the cluster still receives its heartbeats
	c.awaitLabels(metrics.NodeReportingName, of("b"), 0)
	a.crash()
	c.awaitLabels(metrics.NodeReportingName, of("a"), 0)
}

// The slots in use of each node are recorded, and are 0 once a node is gone.
func TestSlotsInUseOfNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("a", "00000000000000aa")
	c.start("b", "00000000000000bb")
	c.exec(`UPDATE forge_nodes SET running = CASE node_id WHEN 'a' THEN 3 ELSE 5 END`)
	defer c.lead(1)()
	of := func(node string) map[string]string { return map[string]string{"node_id": node} }
	c.awaitLabels(metrics.NodeUsedName, of("a"), 3)
	c.awaitLabels(metrics.NodeUsedName, of("b"), 5)
	c.exec(`UPDATE forge_nodes SET state = 'dead' WHERE node_id = 'b'`)
	c.awaitLabels(metrics.NodeUsedName, of("b"), 0)
	c.awaitLabels(metrics.NodeUsedName, of("a"), 3)
}

// A role without candidates has a series nevertheless.
func TestRolesWithoutNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`INSERT INTO forge_leaders (role, incarnation, term) VALUES ('own', NULL, 0)`)
	defer c.lead(1)()
	for _, role := range []string{"scheduler", "log_compactor", "own"} {
		c.awaitLabels(metrics.LeaderIsLeaderName, map[string]string{"role": role}, 0)
	}
}

func (c *cluster) history(metric string, step aggregator.Step) []aggregator.Row {
	c.t.Helper()
	rows, err := aggregator.NewStore(c.pool).Range(context.Background(), aggregator.Query{
		Metric: metric, From: time.Now().Add(-24 * time.Hour), To: time.Now(), Step: step, Limit: 10_000,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return rows
}
