package crons

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// overlapping returns a database with a cron of the overlap policy.
func overlapping(t *testing.T, policy string) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond(policy)})
	return pool
}

// insertRuns inserts runs of the cron c, the oldest first.
func insertRuns(t *testing.T, pool *pgxpool.Pool, state string, n int) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO river_job (args, kind, state, max_attempts, metadata, attempted_at, finalized_at)
		SELECT '{}', 'tidy', $1::text::river_job_state, 3, '{"forge:cron": "c"}',
		       CASE WHEN $1 <> 'available' THEN now() END, CASE WHEN $1 = 'completed' THEN now() END
		FROM generate_series(1, $2::int)`, state, n); err != nil {
		t.Fatal(err)
	}
}

// fireAgain fires the ticks of the last two seconds, which it removes from the ledger first.
func fireAgain(t *testing.T, pool *pgxpool.Pool, tickLedger *ledger) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `DELETE FROM forge_cron_ticks`); err != nil {
		t.Fatal(err)
	}
	rewind(t, pool, 2*time.Second)
	if _, err := tickLedger.Fire(t.Context(), []string{"c"}, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

const (
	firedSQL     = `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired'`
	cancelledSQL = `SELECT count(*) FROM river_job WHERE state = 'cancelled' OR metadata ? 'cancel_attempted_at'`
)

// A run is active for each policy even if many newer runs, for example of a backfill, have
// ended, and it stays so after the first check.
func TestOverlapFindsRunBeforeManyEndedOnes(t *testing.T) {
	t.Parallel()
	for overlap, verdict := range map[string]string{
		"skip": "skipped_overlap", "queue": "queued", "queue_all": "queued", "replace": "fired", "replace_waiting": "skipped_overlap",
	} {
		t.Run(overlap, func(t *testing.T) {
			t.Parallel()
			pool := overlapping(t, overlap)
			insertRuns(t, pool, "running", 1)
			insertRuns(t, pool, "completed", 101)
			tickLedger := newTestLedger(t, pool, pool)
			for range 2 {
				fireAgain(t, pool, tickLedger)
				if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = $1`, verdict); n == 0 {
					t.Errorf("no tick is %s beside the active run", verdict)
				}
				if fired := count(t, pool, firedSQL); fired != 0 && overlap != "replace" {
					t.Errorf("%d ticks fired beside the active run", fired)
				}
			}
			replaced := count(t, pool, `SELECT count(*) FROM river_job WHERE state = 'running' AND metadata ? 'cancel_attempted_at'`)
			if want := map[bool]int64{true: 1}[overlap == "replace"]; replaced != want {
				t.Errorf("%d runs were replaced, want %d", replaced, want)
			}
		})
	}
}

// More runs can be active than are read at once, for example after an edit from allow. The
// oldest one counts when the others have ended.
func TestOverlapFindsOldestOfManyActiveRuns(t *testing.T) {
	t.Parallel()
	pool := overlapping(t, "skip")
	insertRuns(t, pool, "running", 150)
	tickLedger := newTestLedger(t, pool, pool)
	for _, left := range []int{150, 20, 1} {
		if _, err := pool.Exec(t.Context(), `
			UPDATE river_job SET state = 'completed', finalized_at = now()
			WHERE state = 'running' AND id > $1`, left); err != nil {
			t.Fatal(err)
		}
		fireAgain(t, pool, tickLedger)
		if fired := count(t, pool, firedSQL); fired != 0 {
			t.Errorf("%d ticks fired beside %d active runs", fired, left)
		}
	}
}

// A tick does not replace waiting runs while more runs are active than were read: one of the
// others may have started.
func TestReplaceWaitingSkipsIfARunMayHaveStarted(t *testing.T) {
	t.Parallel()
	pool := overlapping(t, "replace_waiting")
	insertRuns(t, pool, "running", 1)
	insertRuns(t, pool, "available", 120)
	fireAgain(t, pool, newTestLedger(t, pool, pool))
	if fired, cancelled := count(t, pool, firedSQL), count(t, pool, cancelledSQL); fired != 0 || cancelled != 0 {
		t.Errorf("%d ticks fired and %d runs were cancelled beside a run that has started", fired, cancelled)
	}
}

// Each tick replaces a part of very many active runs, the newest first, until none is left.
func TestReplaceCancelsManyRuns(t *testing.T) {
	t.Parallel()
	pool := overlapping(t, "replace")
	insertRuns(t, pool, "available", 150)
	tickLedger := newTestLedger(t, pool, pool)
	for range 2 {
		fireAgain(t, pool, tickLedger)
	}
	if active := count(t, pool, activeSQL); active != 1 {
		t.Errorf("%d runs are active, want the newest alone", active)
	}
}
