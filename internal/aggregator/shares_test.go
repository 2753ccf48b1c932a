package aggregator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// divided covers ten minutes from noon, with a value each half minute. In each minute, the kinds
// a and b finish six attempts each, of which one of b fails and one more result of b is refused.
// All wait up to 50 ms.
const divided = `
INSERT INTO forge_metrics_cluster (metric, labels, at, value, histogram, term)
SELECT s.metric, s.labels::jsonb, '2026-03-01 12:00Z'::timestamptz + i * interval '30 seconds', s.each * (i + 1),
       CASE WHEN bound <> '' THEN jsonb_build_object('s', i, 'b', jsonb_build_object(bound, s.each * (i + 1))) END, 1
FROM generate_series(-1, 20) AS i, LATERAL (VALUES
    ('forge_nodes', '{"state": "active"}', 0, ''),
    ('forge_job_finished_total', '{"kind": "a", "outcome": "completed"}', 3, ''),
    ('forge_job_finished_total', '{"kind": "b", "outcome": "completed"}', 2, ''),
    ('forge_job_finished_total', '{"kind": "b", "outcome": "timed_out"}', 1, ''),
    ('forge_job_finished_total', '{"kind": "b", "outcome": "fenced"}', 1, ''),
    ('forge_job_wait_seconds', '{"kind": "a"}', 3, '0.05'), ('forge_job_wait_seconds', '{"kind": "b"}', 3, '0.05'),
    ('forge_job_duration_seconds', '{"kind": "a"}', 3, '1'), ('forge_job_duration_seconds', '{"kind": "b"}', 3, '+Inf'),
    ('forge_queue_job_finished_total', '{"queue": "mail", "outcome": "completed"}', 6, ''),
    ('forge_queue_job_wait_seconds', '{"queue": "mail"}', 6, '0.05'),
    ('forge_node_job_finished_total', '{"node_id": "n1", "outcome": "lost"}', 1, ''),
    ('forge_cron_job_finished_total', '{"cron": "a<b> \"c\", d", "outcome": "cancelled"}', 1, '')
) AS s (metric, labels, each, bound)`

func TestShares(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, divided)
	rollUp(t, pool, noon.Add(10*time.Minute))
	read := func(step aggregator.Step, dimension string, keys int) []aggregator.Share {
		t.Helper()
		shares, err := aggregator.NewStore(pool).Shares(t.Context(), aggregator.ShareQuery{Dimension: dimension, Step: step, From: noon, To: noon.Add(10 * time.Minute)}, keys)
		if err != nil {
			t.Fatal(err)
		}
		return shares
	}
	waited := func(n float64, bound string) *metrics.Histogram {
		return &metrics.Histogram{Buckets: map[string]float64{bound: n}}
	}
	for _, step := range []aggregator.Step{aggregator.Minute, aggregator.FiveMinutes} {
		for dimension, want := range map[string][]aggregator.Share{
			"kind": {
				{Key: "a", Attempts: 60, Wait: waited(60, "0.05"), Took: waited(60, "1")},
				{Key: "b", Attempts: 60, Failures: 20, Wait: waited(60, "0.05"), Took: waited(60, "+Inf")},
			},
			"queue": {{Key: "mail", Attempts: 120, Wait: waited(120, "0.05")}},
			"node":  {{Key: "n1", Attempts: 20, Failures: 20}},
			"cron":  {{Key: `a<b> "c", d`, Attempts: 20}},
		} {
			if diff := cmp.Diff(want, read(step, dimension, 10)); diff != "" {
				t.Errorf("%s by %s (-want +got):\n%s", step, dimension, diff)
			}
		}
		want := []aggregator.Share{
			{Key: "a", Attempts: 60, Wait: waited(60, "0.05"), Took: waited(60, "1")},
			{Key: aggregator.Other, Attempts: 60, Failures: 20, Wait: waited(60, "0.05"), Took: waited(60, "+Inf")},
		}
		if diff := cmp.Diff(want, read(step, "kind", 1)); diff != "" {
			t.Errorf("%s of one key (-want +got):\n%s", step, diff)
		}
	}
	points, err := aggregator.NewStore(pool).SharePoints(t.Context(),
		aggregator.ShareQuery{Dimension: "kind", Step: aggregator.Minute, From: noon, To: noon.Add(10 * time.Minute)}, 5*time.Minute, []string{"b"})
	if err != nil || len(points) != 4 || points[1].Key != "b" || points[1].Attempts != 30 || points[1].Failures != 10 || points[0].Key != aggregator.Other || !points[2].At.Equal(noon.Add(5*time.Minute)) {
		t.Errorf("points %+v, %v", points, err)
	}
	var undivided int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_metrics_rollups WHERE metric LIKE 'forge\_(cron|node|queue)\_job\_%' OR metric LIKE 'forge\_node\_job\_%' OR metric LIKE 'forge\_queue\_job\_%'`).Scan(&undivided); err != nil || undivided > 0 {
		t.Errorf("%d rollups of attempts by other labels than the kind, %v", undivided, err)
	}
}

// A window keeps the keys with the most attempts, whatever their number, and loses no attempt.
func TestSharesAreBounded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO forge_metrics_cluster (metric, labels, at, value, term)
		SELECT 'forge_job_finished_total', jsonb_build_object('kind', 'k' || k, 'outcome', 'completed'), '2026-03-01 12:00Z'::timestamptz + i * interval '30 seconds', greatest(i, 0) * k, 1
		FROM generate_series(-1, 3) AS i, generate_series(1, 10000) AS k WHERE i >= 0 OR k = 1`)
	rollUp(t, pool, noon.Add(5*time.Minute))
	rows, err := pool.Query(t.Context(), `
		SELECT step, count(*), sum(attempts)::bigint, max(attempts) FILTER (WHERE key = '_other')
		FROM forge_metrics_shares WHERE at = '2026-03-01 12:00Z' OR step = 300 GROUP BY step ORDER BY step`)
	if err != nil {
		t.Fatal(err)
	}
	type window struct {
		Step, Rows           int
		Attempts, OfTheOther int64
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[window])
	if err != nil {
		t.Fatal(err)
	}
	const all, most = 10_000 * 10_001 / 2, 50 * (9_951 + 10_000) / 2
	for i, steps := range []int64{1, 3} {
		if i >= len(got) || got[i].Rows != 51 || got[i].Attempts != steps*all || got[i].OfTheOther != steps*(all-most) {
			t.Errorf("windows %+v, want 51 rows of %d attempts", got, steps*all)
		}
	}
}

// manyWindows fills a month of every step with as many keys as a window may have.
const manyWindows = `
INSERT INTO forge_metrics_shares (step, dimension, at, key, attempts, failures, wait, took)
SELECT s.step, d, '2026-03-01 12:00Z'::timestamptz - n * s.step * interval '1 second', 'key-' || k, 60 - k, k % 3, filled, filled
FROM (VALUES (60, 1440), (300, 2016), (3600, 720)) AS s (step, windows), generate_series(1, s.windows) AS n,
     unnest('{cron,kind,node,queue}'::text[]) AS d, generate_series(1, 51) AS k, (SELECT array_fill(2, ARRAY[17])) AS buckets (filled)`

// A breakdown reads only the windows of its dimension, step and time, by the key.
func TestBreakdownReadsFewRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, manyWindows)
	exec(t, pool, `VACUUM ANALYZE forge_metrics_shares`)
	for name, test := range map[string]struct {
		step  aggregator.Step
		width time.Duration
		want  int64
	}{
		"five minutes": {aggregator.Minute, 5 * time.Minute, 5 * 51},
		"two hours":    {aggregator.Minute, 2 * time.Hour, 120 * 51},
		"30 days":      {aggregator.Hour, 30 * 24 * time.Hour, 720 * 51},
	} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			q := aggregator.ShareQuery{Dimension: "queue", Step: test.step, From: noon.Add(-test.width), To: noon}
			before, began := sharesRead(t, tx), time.Now()
			shares, err := aggregator.NewStore(tx).Shares(t.Context(), q, 20)
			if err != nil || len(shares) != 21 || shares[0].Key != "key-1" || shares[20].Key != aggregator.Other {
				t.Errorf("%s: %d shares, %v", name, len(shares), err)
			}
			took := time.Since(began)
			points, err := aggregator.NewStore(tx).SharePoints(t.Context(), q, test.width/5, []string{"key-1", "key-2"})
			if err != nil || len(points) != 15 {
				t.Errorf("%s: %d points, %v", name, len(points), err)
			}
			t.Logf("%s: %s, then %s", name, took, time.Since(began)-took)
			if read := sharesRead(t, tx) - before; read > 2*test.want {
				t.Errorf("%s: %d rows were read, want %d twice", name, read, test.want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A breakdown counts all attempts of its time, even if the windows of a minute are kept only for
// a part of it.
func TestBreakdownOfDeletedWindows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO forge_metrics_shares (step, dimension, at, key, attempts, failures)
		SELECT s.step, 'kind', at, 'k', s.step / 60, 0
		FROM (VALUES (60, '13:03Z'), (300, '12:00Z'), (3600, '10:00Z')) AS s (step, first),
		     generate_series(('2026-03-01 ' || first)::timestamptz, '2026-03-01 13:59Z', s.step * interval '1 second') AS at`)
	for name, test := range map[string]struct {
		from, to time.Duration
		step     string
		want     int64
	}{
		"all windows of a minute":  {65 * time.Minute, 2 * time.Hour, "1m", 55},
		"some windows of a minute": {time.Hour, 2 * time.Hour, "5m", 60},
		"windows of five minutes":  {0, time.Hour, "5m", 60},
		"windows of an hour":       {-time.Hour, time.Hour, "1h", 120},
		"before all windows":       {-3 * time.Hour, -time.Hour, "1h", 60},
	} {
		b, err := aggregator.NewStore(pool).Breakdown(t.Context(), "kind", noon.Add(test.from), noon.Add(test.to), 10, "")
		if err != nil || len(b.Items) != 1 || b.Items[0].Attempts != test.want || b.Step != test.step {
			t.Errorf("%s: %+v, %v; want %d attempts in windows of %s", name, b, err, test.want, test.step)
		}
	}
}

// sharesRead returns how many shares the session has read and not reported yet.
func sharesRead(t *testing.T, tx pgx.Tx) (rows int64) {
	t.Helper()
	err := tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'forge_metrics_shares'`).Scan(&rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(fmt.Errorf("%.60s: %w", sql, err))
	}
}
