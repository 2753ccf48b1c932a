package crons

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// blockedOf returns the blocking run that the list of crons reports for cron c.
func blockedOf(t *testing.T, pool *pgxpool.Pool) cronstore.Blocked {
	t.Helper()
	cron, err := cronstore.New(pool).Get(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	return cron.Blocked
}

func TestWaitingRunIsReportedAsBlocking(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("skip")})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'skipped_overlap' AND reason NOT LIKE '%at the same moment.'`)
	ticks, err := cronstore.New(pool).Ticks(t.Context(), "c", time.Time{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	// A leader that started late may have recorded older ticks without firing them.
	at := slices.IndexFunc(ticks, func(tick cronstore.Tick) bool { return tick.JobID != 0 })
	fired, skipped := ticks[at], ticks[at-1]
	if skipped.BlockedBy != fired.JobID || fired.BlockedBy != 0 {
		t.Errorf("blocked by %d (%q), want by job %d", skipped.BlockedBy, skipped.Reason, fired.JobID)
	}
	if got := blockedOf(t, pool); got.By != fired.JobID || !got.Since.Equal(skipped.Tick) {
		t.Errorf("the cron is blocked by %+v, want job %d since %s", got, fired.JobID, skipped.Tick)
	}
	outlined, err := cronstore.New(pool).Outline(t.Context(), nil)
	if err != nil || len(outlined) != 1 || outlined[0].BlockedBy != fired.JobID {
		t.Errorf("the outline is %+v, %v", outlined, err)
	}
	// A cron that fired again and waits for no run is no longer blocked.
	if _, err := pool.Exec(t.Context(), `
		CREATE FUNCTION finish() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN NEW.state := 'completed'; NEW.finalized_at := now(); RETURN NEW; END $$;
		CREATE TRIGGER finish BEFORE INSERT ON river_job FOR EACH ROW EXECUTE FUNCTION finish();
		UPDATE river_job SET state = 'completed', finalized_at = now()`); err != nil {
		t.Fatal(err)
	}
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := blockedOf(t, pool); got != (cronstore.Blocked{}) {
		t.Errorf("a cron that fires is blocked by %+v", got)
	}
	if outlined, err := cronstore.New(pool).Outline(t.Context(), outlined); err != nil || len(outlined) != 1 || outlined[0].BlockedBy != 0 {
		t.Errorf("the outline is %+v, %v", outlined, err)
	}
}

func TestOverlapReplaceWaiting(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("replace_waiting")})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'replaced'`)

	// A node is about to claim the waiting run. The leader neither replaces that run nor
	// waits for the claim.
	claim, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = claim.Rollback(context.WithoutCancel(t.Context())) }()
	var claimed int64
	for claimed == 0 { // the leader may have just replaced the run
		if err := claim.QueryRow(t.Context(), `
			WITH claimed AS (UPDATE river_job SET state = 'running', attempted_at = now() WHERE state = 'available' RETURNING id)
			SELECT coalesce(max(id), 0) FROM claimed`).Scan(&claimed); err != nil {
			t.Fatal(err)
		}
	}
	await(t, pool, 1, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'skipped_overlap'`)
	if err := claim.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}

	await(t, pool, 1, `SELECT count(*) FROM forge_cron_ticks WHERE reason LIKE 'Blocked by job % (running since %).'`)
	// A run that was rescued from a dead node still counts as started.
	if _, err := pool.Exec(t.Context(), `UPDATE river_job SET state = 'available' WHERE id = $1`, claimed); err != nil {
		t.Fatal(err)
	}
	await(t, pool, 1, `SELECT count(*) FROM forge_cron_ticks WHERE reason LIKE 'Blocked by job % (waiting for its next attempt since %).'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks AS t JOIN river_job AS j ON j.id = t.job_id
		WHERE (t.verdict = 'replaced') <> (j.state = 'cancelled')
		   OR t.verdict = 'replaced' AND t.reason NOT LIKE 'Its run was cancelled: job % of tick % replaced it.'
		   OR j.state <> 'cancelled' AND j.metadata ? 'cancel_attempted_at'`); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	if n := count(t, pool, activeSQL); n != 1 {
		t.Errorf("%d runs are active, want the one that was claimed", n)
	}
	if holes := count(t, pool, holesSQL, "c"); holes != 0 {
		t.Errorf("%d seconds lost or doubled", holes)
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d ticks without exactly one job", wrong)
	}
}
