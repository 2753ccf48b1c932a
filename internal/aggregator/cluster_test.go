package aggregator_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// cluster is a database on which the package's loops run.
type cluster struct {
	t        *testing.T
	pool     *pgxpool.Pool
	metrics  *metrics.Metrics
	interval time.Duration // between reports
	sums     time.Duration // between sums
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{t: t, pool: pgtest.Pool(t), metrics: metrics.New("v0"), interval: interval, sums: 20 * interval}
}

func fence(term int64) leaderstore.Fence {
	return leaderstore.Fence{Role: "metrics_aggregator", Term: term, NodeID: "leader", Incarnation: "00000000000000ff"}
}

func (c *cluster) aggregator() *aggregator.Aggregator {
	return aggregator.New(c.pool, aggregator.Options{
		// The interval of sums is longer than that of reports, so that three
		// intervals suffice on a slow machine.
		Interval: c.sums, Metrics: c.metrics, Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
	})
}

func (c *cluster) acquire(term int64) {
	c.t.Helper()
	c.exec(`INSERT INTO forge_leaders (role, incarnation, term) VALUES ('metrics_aggregator', '00000000000000ff', $1)
		ON CONFLICT (role) DO UPDATE SET term = excluded.term`, term)
}

// lead starts a leader; the returned function ends it and waits.
func (c *cluster) lead(term int64) (stop func()) {
	c.t.Helper()
	c.acquire(term)
	return c.background(func(ctx context.Context) error { return c.aggregator().Lead(ctx, fence(term)) })
}

func (c *cluster) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			c.t.Errorf("the loop ended with %v", err)
		}
	}
	c.t.Cleanup(stop)
	return stop
}

// process is a node that reports.
type process struct {
	c       *cluster
	node    string
	metrics *metrics.Metrics
	stop    func()
}

func (c *cluster) start(node, incarnation string) *process {
	c.t.Helper()
	return c.startWith(node, incarnation, metrics.New("v0"))
}

func (c *cluster) startWith(node, incarnation string, m *metrics.Metrics) *process {
	c.t.Helper()
	c.exec(`INSERT INTO forge_nodes (node_id, incarnation) VALUES ($1, $2)
		ON CONFLICT (node_id) DO UPDATE SET incarnation = excluded.incarnation, state = 'active', fenced_at = NULL`,
		node, incarnation)
	return c.run(node, incarnation, m)
}

func (c *cluster) run(node, incarnation string, m *metrics.Metrics) *process {
	c.t.Helper()
	m.JobRunning.WithLabelValues("k").Set(1)
	reporter := aggregator.NewReporter(c.pool, aggregator.ReporterOptions{
		NodeID: node, Incarnation: incarnation, Interval: c.interval, Metrics: m, Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
	})
	return &process{c: c, node: node, metrics: m, stop: c.background(reporter.Run)}
}

func (p *process) count(n float64) { p.metrics.JobStarted.WithLabelValues("k").Add(n) }

func (p *process) end() { p.stop() }

// crash ends the process as the cluster sees a crash: without a last report, and
// fenced.
func (p *process) crash() {
	p.c.t.Helper()
	p.c.exec(`UPDATE forge_nodes SET state = 'dead', fenced_at = clock_timestamp() WHERE node_id = $1`, p.node)
	p.stop()
}

func (c *cluster) exec(sql string, args ...any) {
	c.t.Helper()
	if _, err := c.pool.Exec(context.Background(), sql, args...); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// points returns all sums of a metric, series by series, oldest first.
func (c *cluster) points(metric string) []aggregator.Point {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), `
		SELECT metric, labels, value, histogram, at, term FROM forge_metrics_cluster WHERE metric = $1 ORDER BY labels, at`, metric)
	if err != nil {
		c.t.Fatal(err)
	}
	points, err := pgx.CollectRows(rows, pgx.RowToStructByPos[aggregator.Point])
	if err != nil {
		c.t.Fatal(err)
	}
	return points
}

// await waits until the newest sum of the metric with kind k is want.
func (c *cluster) await(metric string, want float64) {
	c.t.Helper()
	c.awaitLabels(metric, map[string]string{"kind": "k"}, want)
}

func (c *cluster) awaitLabels(metric string, labels map[string]string, want float64) {
	c.t.Helper()
	var newest []aggregator.Point
	c.until(func() bool {
		var err error
		if newest, err = aggregator.NewStore(c.pool).Latest(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
		for _, point := range newest {
			if point.Name == metric && sameLabels(point.Labels, labels) && point.Value == want {
				return true
			}
		}
		return false
	}, func() { c.t.Fatalf("%s%v did not become %v: %v", metric, labels, want, newest) })
}

func sameLabels(got, want map[string]string) bool {
	if len(got) != len(want) {
		return false
	}
	for name, value := range want {
		if got[name] != value {
			return false
		}
	}
	return true
}

func (c *cluster) awaitTerm(term int64) {
	c.t.Helper()
	c.until(func() bool {
		points, err := aggregator.NewStore(c.pool).Latest(c.t.Context())
		return err == nil && len(points) > 0 && points[0].Term == term
	}, func() { c.t.Fatalf("term %d wrote nothing", term) })
}

func (c *cluster) awaitRow(sql string) {
	c.t.Helper()
	c.until(func() bool {
		var ok *bool
		if err := c.pool.QueryRow(c.t.Context(), sql).Scan(&ok); err != nil {
			c.t.Fatalf("%s: %v", sql, err)
		}
		return ok != nil && *ok
	}, func() { c.t.Fatalf("not so in %s: %s", waitTimeout, sql) })
}

func (c *cluster) until(ok func() bool, fail func()) {
	c.t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for !ok() {
		if time.Now().After(deadline) {
			fail()
		}
		time.Sleep(interval)
	}
}
