package e2e

import (
	"strings"
	"testing"
)

// The history tells what a gap without a scheduler cost.
func TestHistoryShowsTicksOfAGap(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond)
	c.exec(`INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason, gap) VALUES
		('scheduler', 1, 'a', '00000000000000aa', '2026-03-01 12:00Z', '2026-03-01 12:00:10Z', 'lease_expired', NULL),
		('scheduler', 2, 'b', '00000000000000ab', '2026-03-01 12:00:14Z', '2026-03-01 12:00:20Z', 'resigned', '4 s'),
		('scheduler', 3, 'a', '00000000000000ac', '2026-03-01 12:00:20.01Z', NULL, NULL, '10 ms'),
		('log_compactor', 2, 'b', '00000000000000ab', '2026-03-01 12:00:14Z', NULL, NULL, '4 s')`)
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, tick_count) VALUES
		('x', '2026-03-01 12:00:10Z', 'fired', 1, 'a', 1),
		('x', '2026-03-01 12:00:11Z', 'skipped_window', 2, 'b', 2),
		('x', '2026-03-01 12:00:13Z', 'caught_up', 2, 'b', 1),
		('y', '2026-03-01 12:00:13Z', 'caught_up', 2, 'b', 1),
		('z', '2026-03-01 12:00:13Z', 'backfilled', 2, 'b', 1),
		('x', '2026-03-01 12:00:15Z', 'fired', 2, 'b', 1)`)
	out, errs, code := c.forge("leader", "history", "-o", "wide", "--no-headers")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for line, want := range map[int]string{0: "none", 2: "2 caught_up, 2 skipped_window"} {
		if len(lines) != 4 || !strings.Contains(lines[line], want) {
			t.Errorf("no %q in line %d of\n%s", want, line, out)
		}
	}
	if strings.Count(out, "caught_up") != 1 {
		t.Errorf("ticks beside the wrong tenure:\n%s", out)
	}
	out, _, _ = c.forge("leader", "history", "--role", "scheduler", "-o", "json")
	type tenure struct {
		Term     int64            `json:"term"`
		GapMS    float64          `json:"gap_ms"`
		GapTicks map[string]int64 `json:"gap_ticks"`
	}
	tenures := decode[[]tenure](t, out)
	if second := tenures[1]; second.Term != 2 || second.GapMS != 4000 || second.GapTicks["caught_up"] != 2 || second.GapTicks["skipped_window"] != 2 {
		t.Errorf("%+v", tenures)
	}
}
