package aggregator_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Renewals older than an hour and those of longer rollups do not count twice. Node
// b does not lead, c's report is from an earlier process, and d's version of forge
// does not report when it started to count.
const rated = `
INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last)
SELECT step, metric, labels::jsonb, date_trunc('minute', now()) - ago * interval '1 minute', 60, value, 0
FROM (VALUES
    (60, 'forge_leader_renewals_total', '{"role": "scheduler", "result": "renewed"}', 2, 1000),
    (60, 'forge_leader_renewals_total', '{"role": "scheduler", "result": "renewed"}', 58, 198),
    (60, 'forge_leader_renewals_total', '{"role": "scheduler", "result": "error"}', 3, 1),
    (60, 'forge_leader_renewals_total', '{"role": "scheduler", "result": "refused"}', 3, 1),
    (60, 'forge_leader_renewals_total', '{"role": "scheduler", "result": "error"}', 62, 500),
    (300, 'forge_leader_renewals_total', '{"role": "scheduler", "result": "error"}', 5, 700),
    (60, 'forge_leader_renewals_total', '{"role": "own", "result": "error"}', 5, 3),
    (60, 'forge_leader_elections_total', '{"role": "scheduler", "result": "error"}', 5, 900)
) AS windows (step, metric, labels, ago, value);

INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until, backend_pid)
SELECT role, node, incarnation, 1, now(), now(), now() + lease * interval '1 minute', 1
FROM (VALUES ('scheduler', 'a', 'a1', 1), ('own', 'a', 'a1', 1), ('two', 'c', 'c2', 1), ('three', 'd', 'd1', 1), ('past', 'b', 'b1', -1))
    AS leaders (role, node, incarnation, lease);

INSERT INTO forge_metrics_nodes (node_id, incarnation, at, samples)
SELECT node, incarnation, '2026-03-01 12:00:00.7Z', jsonb_build_object('base', heartbeats, 'samples', heartbeats, 'clock', clock) || began
FROM (VALUES
    ('a', 'a1', '{"began": "2026-03-01T15:00:00Z"}'::jsonb), ('b', 'b1', '{"began": "2026-03-01T15:00:00Z"}'),
    ('c', 'c1', '{"began": "2026-03-01T15:00:00Z"}'), ('d', 'd1', '{}')
) AS nodes (node, incarnation, began), (VALUES ('2026-03-01T16:30:00.7Z', '[
    {"n": "forge_node_heartbeats_total", "l": {"node_id": "x", "result": "success"}, "v": 5399},
    {"n": "forge_node_heartbeats_total", "l": {"node_id": "x", "result": "failure"}, "v": 1},
    {"n": "forge_job_started_total", "l": {"kind": "k"}, "v": 7}
]'::jsonb)) AS report (clock, heartbeats)`

func TestReadRates(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if none, err := aggregator.NewStore(pool).Rates(t.Context()); err != nil || len(none.Renewals)+len(none.Heartbeats) > 0 {
		t.Errorf("nothing is recorded: %+v, %v", none, err)
	}
	if _, err := pool.Exec(t.Context(), rated); err != nil {
		t.Fatal(err)
	}
	rates, err := aggregator.NewStore(pool).Rates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for role, rate := range rates.Renewals {
		if ago := time.Since(rate.Since); ago < time.Hour || ago > time.Hour+time.Minute {
			t.Errorf("renewals of %s since %s", role, rate.Since)
		}
		rate.Since = time.Time{}
		rates.Renewals[role] = rate
	}
	for node, rate := range rates.Heartbeats {
		rate.Since = rate.Since.UTC()
		rates.Heartbeats[node] = rate
	}
	want := aggregator.Rates{
		Renewals: map[string]aggregator.Rate{"scheduler": {Succeeded: 1198, Attempts: 1200}, "own": {Attempts: 3}},
		// The node's clock is four and a half hours ahead: it started to count an
		// hour and a half before its report.
		Heartbeats: map[string]aggregator.Rate{"a": {Succeeded: 5399, Attempts: 5400, Since: time.Date(2026, 3, 1, 10, 30, 0, 0, time.UTC)}},
	}
	if diff := cmp.Diff(want, rates); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	of := rates.Of("scheduler", "a")
	if of.Renewals == nil || of.Renewals.String() != "99.8 % of 1,200" || of.Heartbeats == nil || of.Heartbeats.String() != "99.9 % of 5,400" {
		t.Errorf("of the scheduler: %v, %v", of.Renewals, of.Heartbeats)
	}
	if of := rates.Of("two", "c"); of.Renewals != nil || of.Heartbeats != nil {
		t.Errorf("of a role and node without: %v, %v", of.Renewals, of.Heartbeats)
	}
}

// TestRateRoundsDown checks that 100 % means that all attempts succeeded.
func TestRateRoundsDown(t *testing.T) {
	t.Parallel()
	for want, rate := range map[string]aggregator.Rate{
		"100 % of 3":          {Succeeded: 3, Attempts: 3},
		"99.9 % of 1,000,000": {Succeeded: 999_999, Attempts: 1_000_000},
		"66.6 % of 3":         {Succeeded: 2, Attempts: 3},
		"0 % of 2":            {Attempts: 2},
	} {
		if got := rate.String(); got != want {
			t.Errorf("%+v is %q, want %q", rate, got, want)
		}
	}
}
