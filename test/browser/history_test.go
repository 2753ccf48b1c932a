package browser_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// noon is yesterday's.
func noon() time.Time { return time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour) }

// addHistory makes the scheduler change hands yesterday, before the nodes start: at noon
// earlier crashed, and two ticks were due until later led. Metrics were recorded in the hour
// from noon, but not from 12:30 to 12:40.
func (n *node) addHistory(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), strings.TrimPrefix(n.database, "FORGE_DATABASE_URL="))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range []string{
		`INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason, gap) VALUES
			('scheduler', 1, 'earlier', '00000000000000aa', $1::timestamptz - interval '1 h', $1::timestamptz + interval '0.4 s', 'crashed', NULL),
			('scheduler', 2, 'later', '00000000000000bb', $1::timestamptz + interval '2.4 s', $1::timestamptz + interval '1 h', 'resigned', '2 s')`,
		`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, recorded_at, lateness_ms) VALUES
			('nightly', $1::timestamptz + interval '1 s', 'fired', 2, 'later', $1::timestamptz + interval '2.5 s', 1500),
			('hourly', $1::timestamptz + interval '2 s', 'caught_up', 2, 'later', $1::timestamptz + interval '2.5 s', 500)`,
		`INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last, histogram)
		 SELECT 300, metric, labels::jsonb, $1::timestamptz + i * interval '5 min', 300, value, value, histogram::jsonb
		 FROM generate_series(0, 11) AS i, (VALUES
			('forge_nodes', '{"state": "active"}', 2, NULL), ('forge_job_started_total', '{"kind": "report"}', 50, NULL),
			('forge_job_wait_seconds', '{"kind": "report"}', 50, '{"s": 2, "b": {"0.05": 40, "0.25": 10}}')
		 ) AS series (metric, labels, value, histogram)
		 WHERE i NOT IN (6, 7)`,
		`INSERT INTO forge_events (at, type, node_id, role, term, data) VALUES
			($1::timestamptz + interval '0.4 s', 'leader_lost', 'earlier', 'scheduler', 1, '{"reason": "crashed"}'),
			($1::timestamptz + interval '2.3 s', 'election_started', 'later', 'scheduler', 2, '{}'),
			($1::timestamptz + interval '2.4 s', 'leader_elected', 'later', 'scheduler', 2, '{"gap_ms": 2000}')`,
	} {
		if _, err := conn.Exec(t.Context(), sql, noon()); err != nil {
			t.Fatal(err)
		}
	}
}

func whatAGapCost(k *task) {
	k.click(`nav a[href="/leaders"]`)
	k.click(`a[href*="span=7d"]`)
	k.click(`#history a.gap[href="/leaders/scheduler/terms/2"]`)
	k.sees("#ticks")
	for selector, want := range map[string]string{
		".report .lede":                   "earlier crashed. later became the leader 2s later. 2 ticks were delayed, the worst by 1.5s. Nothing was lost.",
		"#ticks tbody tr:first-child":     "nightly",
		"#ticks tbody tr:nth-child(2)":    "hourly",
		`#ticks td[data-label="Late by"]`: "1.50 s",
	} {
		if got := eval[string](k.T, k.tab, `document.querySelector('`+selector+`').textContent`); !strings.Contains(got, want) {
			k.Errorf("%s has %q, want %q", selector, got, want)
		}
	}
}
