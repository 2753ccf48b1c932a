package charts

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// fill adds the sums of the windows of its rows.
func (p *points) fill(rows ...aggregator.Row) {
	for metric, label := range map[string]string{presence: "", "forge_job_started_total": "", "forge_job_finished_total": "outcome", metrics.QueueDepthName: "state", "forge_cron_delay_seconds": ""} {
		p.sums[metric] = dashboardtest.SumWindows(rows, aggregator.SumQuery{Metric: metric, Label: label, From: p.start, To: p.start.Add(p.of.Width), Point: p.of.Point})
	}
}

// fiveMinutes has five points of one minute.
var fiveMinutes = stretch{5 * time.Minute, aggregator.Minute, time.Minute}

// pointsUntil returns points of a window that ends at an instant.
func pointsUntil(now time.Time, of stretch) *points {
	return newPoints(window.Last(of.Width, now, time.UTC), of)
}

func TestChartLines(t *testing.T) {
	t.Parallel()
	p := pointsUntil(dashboardtest.Epoch.Add(20*time.Second), fiveMinutes)
	delay := func(minutes int, buckets map[string]float64) aggregator.Row {
		row := dashboardtest.Window("forge_cron_delay_seconds", minutes, 1, "cron", "a")
		row.Histogram = &metrics.Histogram{Buckets: buckets}
		return row
	}
	p.fill(
		dashboardtest.Window(presence, 4, 3), dashboardtest.Window(presence, 3, 3), dashboardtest.Window(presence, 2, 3),
		dashboardtest.Window("forge_job_started_total", 6, 1000, "kind", "a"), // before the start of the chart
		dashboardtest.Window("forge_job_started_total", 4, 12, "kind", "a"), dashboardtest.Window("forge_job_started_total", 4, 3, "kind", "b"),
		dashboardtest.Window("forge_job_started_total", 2, 5, "kind", "a"),
		dashboardtest.Window("forge_job_started_total", 0, 7, "kind", "a"), // not complete yet
		dashboardtest.Window("forge_job_finished_total", 4, 2, "outcome", "completed"), dashboardtest.Window("forge_job_finished_total", 4, 3, "outcome", "failed"),
		dashboardtest.Window("forge_job_finished_total", 4, 4, "outcome", "lost"), dashboardtest.Window("forge_job_finished_total", 4, 5, "outcome", "cancelled"),
		dashboardtest.Window(metrics.QueueDepthName, 3, 1.5, "queue", "a", "state", "available"), dashboardtest.Window(metrics.QueueDepthName, 3, 2, "queue", "b", "state", "available"),
		delay(4, map[string]float64{"1": 50}), delay(4, map[string]float64{"2": 50}),
	)
	none := math.NaN()
	for _, test := range []struct {
		chart, line int
		want        []float64
	}{
		{0, 0, []float64{none, 15, 0, 5, none}}, // zero while the cluster had an aggregator, unknown otherwise
		{0, 1, []float64{none, 2, 0, 0, none}},
		{0, 2, []float64{none, 7, 0, 0, none}},
		{1, 0, []float64{none, none, 3.5, none, none}},
		{2, 0, []float64{none, 1, none, none, none}},
	} {
		spec := chartSpecs[test.chart].lines[test.line]
		if diff := cmp.Diff(test.want, p.values(spec), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s of %s (-want +got):\n%s", spec.name, chartSpecs[test.chart].name, diff)
		}
	}
	c := p.draw(chartSpecs[0])
	if want := "M300.0 25.0h0L500.0 100.0L700.0 75.0"; c.Lines[0].Path != want || c.Lines[0].Newest != "5" {
		t.Errorf("drawn %q, newest %s; want %q, 5", c.Lines[0].Path, c.Lines[0].Newest, want)
	}
	if want := "Jobs a minute: started 5 now, at most 15; completed 0 now, at most 2; failed 0 now, at most 7."; c.Label != want {
		t.Errorf("label %q, want %q", c.Label, want)
	}
	if c.Grid[0].Text != "20" || len(c.Columns) != 5 || !strings.HasSuffix(c.Columns[1].Title, " UTC: started 15 a minute\ncompleted 2 a minute\nfailed 7 a minute") ||
		!strings.HasSuffix(c.Columns[4].Title, " UTC: no data") {
		t.Errorf("grid %v, columns %v", c.Grid, c.Columns)
	}
}

func TestPointsOfSeveralWindows(t *testing.T) {
	t.Parallel()
	p := pointsUntil(dashboardtest.Epoch, stretch{15 * time.Minute, aggregator.FiveMinutes, 15 * time.Minute})
	p.fill(
		dashboardtest.Window("forge_job_started_total", 15, 20), dashboardtest.Window("forge_job_started_total", 5, 10),
		dashboardtest.Window(metrics.QueueDepthName, 15, 6, "state", "running"), dashboardtest.Window(metrics.QueueDepthName, 10, 2, "state", "running"),
	)
	if got := p.values(chartSpecs[0].lines[0]); got[0] != 2 {
		t.Errorf("30 in 15 minutes are %v a minute", got)
	}
	if got := p.values(chartSpecs[1].lines[1]); got[0] != 4 {
		t.Errorf("6 and 2 are %v on average", got)
	}
}

// The sums that the database computes equal those of windows that are read and added one by
// one.
func TestChartSumsMatchWindows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	// A third of the windows and a whole day are missing. In one window only the less usual
	// series exists.
	_, err := pool.Exec(t.Context(), `
		INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last, histogram)
		SELECT 3600, s.metric, s.labels, '2026-11-20 12:00Z'::timestamptz - n * interval '1 hour', 3600, random() * 40, 5,
		       CASE WHEN s.metric LIKE '%seconds' THEN jsonb_build_object('s', random(),
		           'b', jsonb_build_object('0.01', ceil(random() * 9), (ARRAY['0.5', '1', '2.5', '+Inf'])[1 + abs(n) % 4], 3)) END
		FROM generate_series(-3, 800) AS n, (
			SELECT 'forge_nodes' AS metric, jsonb_build_object('state', s) AS labels FROM unnest(ARRAY['active', 'gone']) AS s
			UNION ALL SELECT 'forge_job_started_total', jsonb_build_object('kind', k::text) FROM generate_series(1, 3) AS k
			UNION ALL SELECT 'forge_job_finished_total', jsonb_build_object('kind', k::text, 'outcome', o)
				FROM generate_series(1, 3) AS k, unnest(ARRAY['completed', 'failed', 'timed_out', 'cancelled']) AS o
			UNION ALL SELECT 'forge_queue_depth', jsonb_build_object('queue', q, 'state', s)
				FROM unnest(ARRAY['a', 'b']) AS q, unnest(ARRAY['available', 'running', 'retryable']) AS s
			UNION ALL SELECT m, jsonb_build_object('x', x::text)
				FROM unnest(ARRAY['forge_cron_delay_seconds', 'forge_job_wait_seconds']) AS m, generate_series(1, 3) AS x
		) AS s
		WHERE random() < 0.67 AND n NOT BETWEEN 100 AND 124`)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range stretches[3:5] {
		p := pointsUntil(dashboardtest.Epoch.Add(20*time.Minute), of)
		if err := p.read(t.Context(), aggregator.NewStore(pool)); err != nil {
			t.Fatal(err)
		}
		for _, spec := range chartSpecs {
			for _, line := range spec.lines {
				want := valuesOneByOne(t, pool, p, line)
				if diff := cmp.Diff(want, p.values(line), cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-9, 1e-9)); diff != "" {
					t.Errorf("%s: %s of %s (-one by one +at once):\n%s", of.Width, line.name, spec.name, diff)
				}
			}
		}
	}
}

// valuesOneByOne reads each window of a line and adds those of a point.
func valuesOneByOne(t *testing.T, pool *pgxpool.Pool, p *points, line lineSpec) []float64 {
	t.Helper()
	rows := func(metric string) []aggregator.Row {
		rows, err := aggregator.NewStore(pool).Range(t.Context(), aggregator.Query{Metric: metric, Step: p.of.Step, From: p.start, To: p.start.Add(p.of.Width), Limit: 50_000})
		if err != nil || len(rows) == 0 {
			t.Fatalf("%d windows of %s, %v", len(rows), metric, err)
		}
		return rows
	}
	present, own := rows(presence), rows(line.metric)
	own = slices.DeleteFunc(own, func(r aggregator.Row) bool {
		return line.label != "" && !slices.Contains(line.values, r.Labels[line.label])
	})
	values := make([]float64, p.count())
	for i := range values {
		values[i] = math.NaN()
		q := aggregator.SumQuery{Metric: line.metric, From: p.at(i), To: p.at(i + 1), Point: p.of.Point}
		in := dashboardtest.SumWindows(own, q)
		q.Metric = presence
		if len(in) > 0 || len(dashboardtest.SumWindows(present, q)) > 0 {
			values[i] = line.value(in, p.of)
		}
	}
	return values
}

func TestRoundUp(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{0: 1, .03: .04, 1: 1, 1.1: 2, 7: 8, 9: 10, 100: 100, 4001: 6000} {
		if got := roundUp(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("roundUp(%v) = %v, want %v", v, got, want)
		}
	}
}

func TestNextCheck(t *testing.T) {
	t.Parallel()
	quarters := stretch{time.Hour, aggregator.FiveMinutes, 15 * time.Minute}
	now := dashboardtest.Epoch.Add(20 * time.Second) // the end of the last quarter of a minute
	for _, test := range []struct {
		name    string
		written []aggregator.Row
		want    time.Time
	}{
		{"all is written", []aggregator.Row{dashboardtest.Window(presence, 10, 1), dashboardtest.Window(presence, 5, 1)}, dashboardtest.Epoch.Add(15 * time.Minute)},
		{"a part of the newest point", []aggregator.Row{dashboardtest.Window(presence, 15, 1), dashboardtest.Window(presence, 10, 1)}, now.Add(time.Minute)},
		{"nobody wrote", nil, now.Add(time.Minute)},
	} {
		p := pointsUntil(now, quarters)
		p.fill(test.written...)
		if got := p.nextCheck(now); !got.Equal(test.want) {
			t.Errorf("%s: the next look is at %s, want %s", test.name, got, test.want)
		}
	}
	if got, want := pointsUntil(now, fiveMinutes).nextCheck(now), now.Add(5*time.Second); !got.Equal(want) {
		t.Errorf("of minutes the next look is at %s, want %s", got, want)
	}
}
