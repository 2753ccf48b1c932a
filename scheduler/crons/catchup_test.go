package crons

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

func TestCatchUpAfterGap(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, catchUp  string
		caughtUp, rows int64
	}{
		{"none", "none", 0, 1},
		{"latest", "latest", 1, 2},
		{"all", "all", 10, 11},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			spec := everySecond("allow")
			spec.CatchUp = tt.catchUp
			apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
			rewind(t, pool, 10*time.Minute)
			stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
			await(t, pool, 60, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired'`)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if got := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'caught_up'`); got != tt.caughtUp {
				t.Errorf("%d caught up, want %d", got, tt.caughtUp)
			}
			if got := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict <> 'fired'`); got != tt.rows {
				t.Errorf("%d rows for the gap, want %d", got, tt.rows)
			}
			if wrong := count(t, pool, holesSQL, "c") + count(t, pool, mismatchSQL); wrong != 0 {
				t.Errorf("%d wrong rows", wrong)
			}
		})
	}
}

// The outage lasts two days, which is more ticks than a slice holds. One of the ticks was
// triggered by hand.
func TestLongOutageIsRecordedInFewRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("allow"), "fresh": everySecond("allow")})
	rewind(t, pool, 48*time.Hour)
	if _, err := pool.Exec(t.Context(), `
		UPDATE forge_crons SET watermark = clock_timestamp(), next_tick = clock_timestamp() WHERE name = 'fresh'`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id)
		SELECT 'c', next_tick, 'triggered', 1, 'n1' FROM forge_crons WHERE name = 'c'`); err != nil {
		t.Fatal(err)
	}
	firer := newFirer(t, pool, newInserter(t, pool))
	firer.cache.tickLimit = postgres.NewBatchSize(maxTicks, time.Hour) // the limit of a fast machine
	stop := lead(t, firer, makeLeader(t, pool, "n1"))
	await(t, pool, 60, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c' AND verdict = 'fired'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	skipped := count(t, pool, `SELECT sum(tick_count) FROM forge_cron_ticks WHERE verdict LIKE 'skipped%'`)
	if want := int64(47 * 3600); skipped < want {
		t.Errorf("%d ticks skipped, want at least %d", skipped, want)
	}
	if rows := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict LIKE 'skipped%'`); rows > 15 {
		t.Errorf("the outage has %d rows", rows)
	}
	if holes := count(t, pool, holesSQL, "c"); holes != 0 {
		t.Errorf("%d seconds lost or doubled", holes)
	}
}

// Ticks that were run by hand before the leader recorded them do not stop the ticks after them,
// even if a whole slice consists of them.
func TestTicksRunByHandDoNotStopSlices(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"from the watermark": 1, "after a tick that was missed": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			spec := everySecond("allow")
			spec.CatchUpSpan = config.Duration(24 * time.Hour)
			apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
			rewind(t, pool, 9*time.Hour)
			_, err := pool.Exec(t.Context(), `
				INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, term, node_id, recorded_at, lateness_ms, tick_count)
				SELECT 'c', c.watermark + n * interval '1 s', 'triggered', '', 0, '', now(), 0, 1
				FROM forge_crons AS c, generate_series($1::int, 21000) AS n`, first)
			if err != nil {
				t.Fatal(err)
			}
			lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "a"))
			await(t, pool, 1, `SELECT count(*) FROM forge_crons WHERE watermark > now() - interval '1 minute'`)
			missing := count(t, pool, `
				SELECT extract(epoch FROM date_trunc('second', c.watermark) - min(t.tick))::bigint + 1 - sum(t.tick_count)
				FROM forge_crons AS c JOIN forge_cron_ticks AS t ON t.cron = c.name AND t.tick <= c.watermark GROUP BY c.watermark`)
			if missing != 0 {
				t.Errorf("%d ticks are not recorded", missing)
			}
			if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'caught_up'`); n != 1 {
				t.Errorf("%d ticks were caught up, want the latest", n)
			}
		})
	}
}
