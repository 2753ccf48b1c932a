package aggregator_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// The data covers 32 minutes, with a value each half minute: a counter that
// increases by one and restarts after seven minutes, two gauges, and a histogram
// whose values change at 12:20. Nothing was written from 12:10 to 12:15, when the
// counter increased by three.
const halfHour = `
INSERT INTO forge_metrics_cluster (metric, labels, at, value, histogram, term)
SELECT s.metric, s.labels::jsonb, '2026-03-01 12:00Z'::timestamptz + i * interval '30 seconds', s.value, s.histogram, 1
FROM generate_series(0, 63) AS i, LATERAL (VALUES
    ('c_total', '{"outcome": "completed", "kind": "a"}', CASE WHEN i < 14 THEN i WHEN i < 20 THEN i - 14 ELSE i - 21 END, NULL::jsonb),
    ('g', '{"queue": "a", "state": "running"}', 2, NULL),
    ('g', '{"queue": "b", "state": "running"}', 3, NULL),
    ('g', '{"queue": "b", "state": "available"}', 7, NULL),
    ('h_seconds', '{}', i + 1, jsonb_build_object('s', 2 * i, 'b', CASE WHEN i < 40
        THEN jsonb_build_object('1', i + 1) ELSE jsonb_build_object('1', 40, '2.5', i - 39) END))
) AS s (metric, labels, value, histogram)
WHERE i NOT BETWEEN 20 AND 29`

func rollUp(t *testing.T, pool *pgxpool.Pool, until time.Time) {
	t.Helper()
	for _, step := range []aggregator.Step{aggregator.Minute, aggregator.FiveMinutes} {
		for from := noon; !from.IsZero(); {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
				var next aggregator.Finished
				if next, err = aggregator.NewStore(tx).Next(t.Context(), step, from, until, holds); err == nil && !next.End.IsZero() {
					err = aggregator.NewStore(tx).Write(t.Context(), next)
				}
				from = next.End
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSums(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), halfHour); err != nil {
		t.Fatal(err)
	}
	rollUp(t, pool, noon.Add(32*time.Minute))
	_, err := pool.Exec(t.Context(), `
		INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last, histogram)
		VALUES (300, 'empty_seconds', '{}', '2026-03-01 12:00Z', 300, 0, 0, '{"s": 0, "b": null}')`)
	if err != nil {
		t.Fatal(err)
	}
	sum := func(minute int, label string, value float64, windows, newest int) aggregator.Sum {
		return aggregator.Sum{
			At: noon.Add(time.Duration(minute) * time.Minute), Label: label, Value: value,
			Windows: windows, Newest: noon.Add(time.Duration(newest) * time.Minute),
		}
	}
	given := func(s aggregator.Sum, total float64, buckets map[string]float64) aggregator.Sum {
		s.Histogram = &metrics.Histogram{Sum: total, Buckets: buckets}
		return s
	}
	for name, test := range map[string]struct {
		metric, label string
		step          aggregator.Step
		from, to      int
		want          []aggregator.Sum
	}{
		"a counter that began again, a gap, and a window that is not over": {
			"c_total", "outcome", aggregator.FiveMinutes, 0, 40,
			[]aggregator.Sum{sum(0, "completed", 13+5, 2, 5), sum(10, "completed", 13, 1, 15), sum(20, "completed", 20, 2, 25)},
		},
		"the newest minutes of a point": {
			"c_total", "", aggregator.Minute, 20, 40,
			[]aggregator.Sum{sum(20, "", 20, 10, 29), sum(30, "", 4, 2, 31)},
		},
		"gauges of several series": {
			"g", "state", aggregator.FiveMinutes, 0, 20,
			[]aggregator.Sum{sum(0, "available", 14, 2, 5), sum(10, "available", 7, 1, 15), sum(0, "running", 10, 2, 5), sum(10, "running", 5, 1, 15)},
		},
		"a label that no series has": {
			"g", "kind", aggregator.FiveMinutes, 10, 20, []aggregator.Sum{sum(10, "", 12, 1, 15)},
		},
		"histograms of other buckets": {
			"h_seconds", "", aggregator.FiveMinutes, 15, 35,
			[]aggregator.Sum{
				given(sum(15, "", 30, 2, 20), 60, map[string]float64{"1": 20, "2.5": 10}),
				given(sum(25, "", 10, 1, 25), 20, map[string]float64{"2.5": 10}),
			},
		},
		"a bucket of several windows": {
			"h_seconds", "", aggregator.FiveMinutes, 0, 10,
			[]aggregator.Sum{given(sum(0, "", 20, 2, 5), 38, map[string]float64{"1": 20})},
		},
		"a histogram without buckets": {
			"empty_seconds", "", aggregator.FiveMinutes, 0, 10, []aggregator.Sum{given(sum(0, "", 0, 1, 0), 0, nil)},
		},
		"nothing": {"nobody", "", aggregator.Minute, 0, 40, nil},
	} {
		got, err := aggregator.NewStore(pool).Sums(t.Context(), aggregator.SumQuery{
			Metric: test.metric, Label: test.label, Step: test.step, Point: 10 * time.Minute,
			From: noon.Add(time.Duration(test.from) * time.Minute), To: noon.Add(time.Duration(test.to) * time.Minute),
		})
		for i := range got {
			got[i].At, got[i].Newest = got[i].At.UTC(), got[i].Newest.UTC()
		}
		if diff := cmp.Diff(test.want, got); len(test.want)+len(got) > 0 && diff != "" || err != nil {
			t.Errorf("%s (-want +got):\n%s%v", name, diff, err)
		}
	}
}

// Series names the series to add up by all of their labels.
func TestSumsOfSeries(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), halfHour); err != nil {
		t.Fatal(err)
	}
	rollUp(t, pool, noon.Add(10*time.Minute))
	for name, test := range map[string]struct {
		series []map[string]string
		want   map[string]float64
	}{
		"one":  {[]map[string]string{{"queue": "b", "state": "running"}}, map[string]float64{"running": 15}},
		"two":  {[]map[string]string{{"queue": "b", "state": "running"}, {"queue": "b", "state": "available"}}, map[string]float64{"running": 15, "available": 35}},
		"some": {[]map[string]string{{"queue": "b"}, {"queue": `o'dd"{}`, "state": "running"}}, map[string]float64{}},
		"none": {[]map[string]string{}, map[string]float64{}},
	} {
		sums, err := aggregator.NewStore(pool).Sums(t.Context(), aggregator.SumQuery{
			Metric: "g", Label: "state", Series: test.series, Step: aggregator.Minute, Point: 5 * time.Minute, From: noon, To: noon.Add(5 * time.Minute),
		})
		got := map[string]float64{}
		for _, s := range sums {
			got[s.Label] = s.Value
		}
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s (-want +got):\n%s%v", name, diff, err)
		}
	}
}
