package aggregator

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// busyMetrics returns the metrics of a node with a hundred crons and job kinds, all
// with counts.
func busyMetrics() *metrics.Metrics {
	m := metrics.New("v0")
	m.InitRoles("a", []string{"scheduler", "metrics_aggregator", "log_compactor"})
	for i := range 100 {
		name := fmt.Sprintf("job-%d", i)
		m.InitCrons([]string{name})
		m.InitKinds([]string{name})
		m.CronRuns.WithLabelValues(name).Inc()
		m.CronTicks.WithLabelValues(name, "fired").Inc()
		m.JobStarted.WithLabelValues(name).Inc()
		m.JobFinished.WithLabelValues(name, "completed").Inc()
		for _, seconds := range []float64{.002, .02, .2} {
			m.CronDelay.WithLabelValues(name).Observe(seconds)
			m.JobWait.WithLabelValues(name).Observe(seconds)
			m.JobDuration.WithLabelValues(name).Observe(seconds)
		}
	}
	return m
}

// BenchmarkReport measures a node's report, including the database.
func BenchmarkReport(b *testing.B) {
	pool := pgtest.Pool(b)
	if _, err := pool.Exec(b.Context(), `INSERT INTO forge_nodes (node_id, incarnation) VALUES ('a', '00000000000000aa')`); err != nil {
		b.Fatal(err)
	}
	r := NewReporter(pool, ReporterOptions{
		NodeID: "a", Incarnation: "00000000000000aa", Interval: 15 * time.Second, Metrics: busyMetrics(), Logger: slog.New(slog.DiscardHandler),
	})
	for b.Loop() {
		if err := r.report(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSum measures the leader's sum for each such node, without the database.
func BenchmarkSum(b *testing.B) {
	samples, err := busyMetrics().Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	nodes := make([]nodeReport, 10)
	for i := range nodes {
		nodes[i] = nodeReport{report: report{Samples: reportable(samples)}, fresh: true}
	}
	for b.Loop() {
		if len(clusterSums(nodes, nil)) == 0 {
			b.Fatal("no sums")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(nodes)), "µs/node")
}
