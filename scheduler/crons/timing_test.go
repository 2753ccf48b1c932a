package crons

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A tick fires after its jitter and not before, and keeps the tick of the schedule.
func TestJitterDelaysTick(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	spec := everySecond("allow")
	spec.Jitter = config.Duration(900 * time.Millisecond)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
	firer := newFirer(t, pool, newInserter(t, pool))
	for term := range 3 { // a new leader computes the same delays
		stop := lead(t, firer, makeLeader(t, pool, "n1"))
		await(t, pool, int64(2*(term+1)), ledgerCountSQL)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	// A check before the end of the jitter leaves the tick for a later check.
	tickLedger := newLedger(firer.options, makeLeader(t, pool, "n1"), newTermCache(), firer.meter, firer.options.Logger)
	for recorded := count(t, pool, ledgerCountSQL); count(t, pool, ledgerCountSQL) < recorded+2; {
		if _, err := tickLedger.Fire(t.Context(), []string{"c"}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // leaves processor time to other tests
	}
	ticks, err := cronstore.New(pool).Ticks(t.Context(), "c", time.Time{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	line, err := spec.Timeline("c")
	if err != nil {
		t.Fatal(err)
	}
	delayed := false
	for _, tick := range ticks {
		due, ok := line.At(tick.Tick)
		if !ok || tick.Verdict != cronstore.Fired {
			t.Fatalf("%+v", tick)
		}
		if tick.RecordedAt.Before(due.FiresAt) {
			t.Errorf("tick %s fired at %s, before %s", tick.Tick, tick.RecordedAt, due.FiresAt)
		}
		late := tick.RecordedAt.Sub(due.FiresAt).Seconds() * 1000
		if math.Abs(tick.LatenessMS-late) > 0.01 {
			t.Errorf("tick %s is recorded as %f ms late, want %f", tick.Tick, tick.LatenessMS, late)
		}
		delayed = delayed || due.FiresAt.After(due.At.Add(100*time.Millisecond))
	}
	if !delayed {
		t.Error("no tick was delayed")
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	if holes := count(t, pool, `
		SELECT extract(epoch FROM max(tick) - min(tick))::bigint + 1 - count(*) FROM forge_cron_ticks`); holes != 0 {
		t.Errorf("%d seconds are missing", holes)
	}
}

// A check leaves a tick whose jitter has not passed for the next check, even if the
// schedule changes in between.
func TestEditDuringJitterLosesNoTick(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	spec := everySecond("allow")
	spec.Schedule, spec.Jitter = "@every 3s", config.Duration(2900*time.Millisecond)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
	line, err := spec.Timeline("c")
	if err != nil {
		t.Fatal(err)
	}
	last, _ := line.Before(time.Now())
	if _, err := pool.Exec(t.Context(), `UPDATE forge_crons SET watermark = $1::timestamptz - interval '1 second', next_tick = $2`, last.At, last.At); err != nil {
		t.Fatal(err)
	}
	edited := spec
	edited.Schedule = "@yearly"
	apply(t, pool, "h2", map[string]cronstore.Spec{"c": edited})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 1, ledgerCountSQL)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks WHERE tick = $1 AND verdict = 'fired' AND recorded_at >= $2`, last.At, last.FiresAt); n != 1 {
		t.Error("the tick of the old schedule was lost or fired early")
	}
}

// The ticks of an edited schedule fire on time even if a tick of the old schedule still waits for
// the end of its jitter. That tick fires once, before them.
func TestEditDuringJitterDelaysNoNewTick(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	spec := everySecond("allow")
	hour := (time.Now().UTC().Hour() + 23) % 24 // the last tick is one or two hours old
	spec.Schedule, spec.Jitter = fmt.Sprintf("@every 1d/%dh", hour), config.Duration(20*time.Hour)
	if hour == 0 {
		spec.Schedule = "@every 1d"
	}
	var name string
	var old cronstore.Due
	for i := 0; !old.FiresAt.After(time.Now().Add(10 * time.Minute)); i++ { // a name with a long delay
		name = fmt.Sprint("c", i)
		line, err := spec.Timeline(name)
		if err != nil {
			t.Fatal(err)
		}
		old, _ = line.Before(time.Now())
	}
	apply(t, pool, "h1", map[string]cronstore.Spec{name: spec})
	if _, err := pool.Exec(t.Context(), `UPDATE forge_crons SET watermark = $1::timestamptz - interval '1 second', next_tick = $2`, old.At, old.FiresAt); err != nil {
		t.Fatal(err)
	}
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	apply(t, pool, "h2", map[string]cronstore.Spec{name: everySecond("allow")})
	if next := count(t, pool, `SELECT count(*) FROM forge_crons WHERE next_tick < updated_at + interval '5 minutes'`); next != 1 {
		t.Error("the next tick still waits for the end of the jitter")
	}
	await(t, pool, 4, ledgerCountSQL)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks WHERE tick = $1 AND verdict = 'fired' AND job_id = (SELECT min(id) FROM river_job)`, old.At); n != 1 {
		t.Error("the tick of the old schedule did not fire first")
	}
	if holes := count(t, pool, `
		SELECT count(*) FROM (
		    SELECT s.at FROM forge_crons AS c, generate_series(date_trunc('second', c.updated_at) + interval '1 second', c.watermark, interval '1 second') AS s (at)
		    LEFT JOIN forge_cron_ticks AS t ON t.tick = s.at
		    GROUP BY s.at HAVING count(t.tick) <> 1) AS wrong`); holes != 0 {
		t.Errorf("%d seconds lost or doubled", holes)
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks WHERE verdict <> 'fired' OR tick > $1 AND recorded_at > tick + interval '30 seconds'`, old.At); wrong != 0 {
		t.Errorf("%d ticks did not fire, or fired late", wrong)
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d ticks without exactly one job", wrong)
	}
}

func TestExcludedTicksAreRecorded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	spec := everySecond("allow")
	spec.Exclude = []string{"*/2 * * * * *"}
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 4, ledgerCountSQL)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks
		WHERE verdict <> CASE WHEN extract(epoch FROM tick)::bigint % 2 = 0 THEN 'skipped_excluded' ELSE 'fired' END
		   OR (verdict = 'skipped_excluded') <> (reason = 'It is excluded by "*/2 * * * * *".')`); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	if holes := count(t, pool, holesSQL, "c"); holes != 0 {
		t.Errorf("%d seconds lost or doubled", holes)
	}
}
