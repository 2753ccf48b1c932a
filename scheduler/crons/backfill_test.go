package crons

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestBackfillRunsMissingTicksOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	spec := everySecond("skip")
	spec.Schedule, spec.Exclude = "* * * * *", []string{"5 * * * *"}
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, job_id, term, node_id, last_tick, tick_count)
		VALUES ('c', $1::timestamptz, 'fired', '', 9, 1, 'n1', NULL, 1),
		       ('c', $1 + interval '1 minute', 'queued', '', NULL, 1, 'n1', NULL, 1),
		       ('c', $1 + interval '100 minutes', 'skipped_window', 'Too old.', NULL, 1, 'n1', $1 + interval '130 minutes', 30)`, from); err != nil {
		t.Fatal(err)
	}
	span := cronstore.Span{Cron: "c", From: from, To: from.Add(4 * time.Hour), Limit: 150}
	manual := manualOn(t, pool)
	for _, want := range []struct {
		ticks int
		more  bool
	}{{150, true}, {240 - 2 - 4 - 150, false}, {0, false}} {
		plan, err := cronstore.New(pool).BackfillTicks(t.Context(), span)
		if err != nil || len(plan.Ticks) != want.ticks || plan.More != want.more {
			t.Fatalf("%d ticks, more %t, %v; want %+v", len(plan.Ticks), plan.More, err, want)
		}
		var backfills sync.WaitGroup
		ran := make([]int, 2)
		for i := range ran { // two concurrent backfills share the ticks
			backfills.Go(func() {
				settled := 0
				n, err := manual.Backfill(t.Context(), plan, "ada", func(n int) { settled = n })
				if err != nil || settled != len(plan.Ticks) {
					t.Errorf("settled %d of %d, %v", settled, len(plan.Ticks), err)
				}
				ran[i] = n
			})
		}
		backfills.Wait()
		if ran[0]+ran[1] != want.ticks {
			t.Errorf("%d ran, want %d", ran, want.ticks)
		}
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks AS t WHERE verdict = 'backfilled' AND (1 <> (
		    SELECT count(*) FROM river_job AS j WHERE j.id = t.job_id AND (j.metadata ->> 'forge:tick')::timestamptz = t.tick)
		    OR (reason <> 'Backfilled by ada.') <> (tick BETWEEN $1::timestamptz + interval '100 minutes' AND $1 + interval '130 minutes'))`, from); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	if jobs := count(t, pool, `SELECT count(*) FROM river_job`); jobs != 240-2-4 {
		t.Errorf("%d jobs", jobs)
	}
	if n := count(t, pool, `SELECT sum((data ->> 'ticks')::int) FROM forge_events WHERE type = 'cron_backfilled'`); n != 240-2-4 {
		t.Errorf("the events count %d ticks", n)
	}
}

// A backfill does not touch ticks after the watermark: the leader settles those.
func TestBackfillEndsAtWatermark(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("skip")})
	rewind(t, pool, time.Minute)
	cron, err := cronstore.New(pool).Get(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	settled := cron.Watermark
	plan, err := cronstore.New(pool).BackfillTicks(t.Context(), cronstore.Span{Cron: "c", From: settled.Add(-59 * time.Second), To: settled.Add(time.Hour), Limit: 1000})
	if err != nil || len(plan.Ticks) != 60 {
		t.Errorf("%d ticks, %v; want the ticks of the settled minute", len(plan.Ticks), err)
	}
	if _, err := cronstore.New(pool).BackfillTicks(t.Context(), cronstore.Span{Cron: "unknown"}); !errors.Is(err, cronstore.ErrNotFound) {
		t.Errorf("unknown cron: %v", err)
	}
}
