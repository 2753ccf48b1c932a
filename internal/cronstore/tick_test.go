package cronstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestFindTick(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	exec(t, pool, `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, last_tick, tick_count)
		VALUES ('a', $1::timestamptz, 'skipped_window', 1, 'n1', $1 + interval '10 hours', 10),
		       ('a', $1 + interval '3 hours', 'triggered', 1, 'n1', NULL, 1),
		       ('a', $1 + interval '12 hours', 'fired', 1, 'n1', NULL, 1),
		       ('b', $1 + interval '11 hours', 'fired', 1, 'n1', NULL, 1)`, start)
	for hour, want := range map[int]cronstore.Verdict{
		-1: "", 0: cronstore.SkippedWindow, 3: cronstore.Triggered, 4: cronstore.SkippedWindow, 10: cronstore.SkippedWindow,
		11: "", 12: cronstore.Fired, 13: "",
	} {
		found, err := cronstore.New(pool).FindTick(t.Context(), "a", start.Add(time.Duration(hour)*time.Hour))
		if found.Verdict != want || (want == "") != errors.Is(err, cronstore.ErrNotFound) {
			t.Errorf("hour %d: %s, %v; want %q", hour, found.Verdict, err, want)
		}
	}
}
