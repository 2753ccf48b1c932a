package crons

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestDequeue(t *testing.T) {
	t.Parallel()
	queue := []cronstore.Tick{{Tick: noon.Add(-time.Minute)}, {Tick: noon.Add(-time.Second)}}
	for _, test := range []struct {
		name            string
		overlap         string
		earlier         *run
		paused, removed bool
		want            string
	}{
		{"the oldest fires", "queue_all", nil, false, false, "fired: It waited 1m0s in the queue."},
		{"something runs", "queue_all", &run{ID: 7, State: "running"}, false, false, ""},
		{"paused", "queue_all", nil, true, false, ""},
		{"now they may overlap", "allow", &run{ID: 7, State: "running"}, false, false, "fired: It waited 1m0s in the queue. fired: It waited 1s in the queue."},
		{"now they are skipped", "skip", nil, false, false, "fired: It waited 1m0s in the queue."},
		{
			"removed", "queue", &run{ID: 7, State: "running"}, true, true,
			strings.TrimSpace(strings.Repeat("skipped_excluded: The cron was removed while this tick was queued. ", 2)),
		},
	} {
		var got []string
		for _, row := range dequeue(&cronstore.Spec{Overlap: test.overlap}, noon, queue, test.earlier, test.paused, test.removed) {
			got = append(got, fmt.Sprintf("%s: %s", row.Verdict, row.Reason))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}

// finish completes the oldest active run, as a node would.
func finish(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `
		UPDATE river_job SET state = 'completed', finalized_at = now()
		WHERE id = (SELECT min(id) FROM river_job WHERE state = 'available')`); err != nil {
		t.Fatal(err)
	}
}

const activeSQL = `SELECT count(*) FROM river_job WHERE state = 'available'`

func TestOverlapSkip(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("skip"), "other": everySecond("skip")})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c' AND verdict = 'skipped_overlap'`)
	if _, err := pool.Exec(t.Context(), `
		UPDATE river_job SET state = 'completed', finalized_at = now() WHERE metadata ->> 'forge:cron' = 'c'`); err != nil {
		t.Fatal(err)
	}
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c' AND verdict = 'fired'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if fired := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'other' AND verdict = 'fired'`); fired != 1 {
		t.Errorf("the other cron fired %d times beside its own run, want 1", fired)
	}
}

func TestOverlapQueueAll(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("queue_all")})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'queued'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// The next leader handles the queue even if the cron is no longer due.
	once := everySecond("queue_all")
	once.Schedule = "@yearly"
	apply(t, pool, "h2", map[string]cronstore.Spec{"c": once})
	stop = lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n2"))
	await(t, pool, 1, `SELECT count(*) FROM forge_crons WHERE watermark > updated_at`) // the seconds until the edit are queued too
	for count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'queued'`) > 0 {
		if n := count(t, pool, activeSQL); n != 1 {
			t.Fatalf("%d runs are active at once", n)
		}
		jobs := count(t, pool, `SELECT count(*) FROM river_job`)
		finish(t, pool)
		await(t, pool, jobs+1, `SELECT count(*) FROM river_job`)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks AS t
		WHERE verdict <> 'fired' OR job_id IS NULL OR (tick > (SELECT min(tick) FROM forge_cron_ticks))
		      <> (reason LIKE 'It waited %' AND term = 2 AND node_id = 'n2')`); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks AS a JOIN forge_cron_ticks AS b ON a.tick < b.tick AND a.job_id > b.job_id`); wrong != 0 {
		t.Error("the queue lost its order")
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d ticks without exactly one job", wrong)
	}
}

func TestOverlapQueueKeepsOneTick(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("queue")})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'skipped_overlap'`)
	if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'queued'`); n != 1 {
		t.Errorf("%d ticks wait, want one", n)
	}
	finish(t, pool)
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired'`)
	apply(t, pool, "h2", nil) // queued ticks of a removed cron no longer fire
	await(t, pool, 1, `SELECT 1 - count(*) FROM forge_cron_ticks WHERE verdict = 'queued'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if holes := count(t, pool, holesSQL, "c"); holes != 0 {
		t.Errorf("%d seconds lost or doubled", holes)
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d ticks without exactly one job", wrong)
	}
}

func TestOverlapReplace(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("replace"), "other": everySecond("skip")})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c' AND verdict = 'replaced'`)
	for claimed := int64(0); claimed == 0; { // the leader may have just replaced the run
		tag, err := pool.Exec(t.Context(), `
			UPDATE river_job SET state = 'running' WHERE state = 'available' AND metadata ->> 'forge:cron' = 'c'`)
		if err != nil {
			t.Fatal(err)
		}
		claimed = tag.RowsAffected()
	}
	await(t, pool, 1, `SELECT count(*) FROM river_job WHERE state = 'running' AND metadata ? 'cancel_attempted_at'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks AS t JOIN river_job AS j ON j.id = t.job_id
		WHERE t.cron = 'c' AND (t.verdict = 'replaced') <> (j.state = 'cancelled' OR j.metadata ? 'cancel_attempted_at')
		   OR t.verdict = 'replaced' AND t.reason NOT LIKE 'Its run was cancelled: job % of tick % replaced it.'
		   OR t.cron = 'other' AND j.state <> 'available'`); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c' AND verdict = 'fired'`); n != 1 {
		t.Errorf("%d runs that were not replaced, want the last", n)
	}
	if holes := count(t, pool, holesSQL, "c"); holes != 0 {
		t.Errorf("%d seconds lost or doubled", holes)
	}
}

// A run that waits for its next attempt is active, and so is a run that has not started.
func TestOverlapTreatsUnfinishedRunStatesAsActive(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	states := map[string]bool{ // whether the run has ended
		"available": false, "running": false, "retryable": false, "scheduled": false, "pending": false,
		"completed": true, "cancelled": true, "discarded": true,
	}
	doing := map[string]string{
		"available": "waiting since", "running": "running since", "retryable": "waiting for its next attempt at",
		"scheduled": "scheduled for", "pending": "waiting since",
	}
	crons := map[string]cronstore.Spec{}
	for state := range states {
		crons[state] = everySecond("skip")
	}
	apply(t, pool, "h1", crons)
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, int64(len(states)), `SELECT count(DISTINCT cron) FROM forge_cron_ticks WHERE verdict = 'fired'`)
	if _, err := pool.Exec(t.Context(), `
		UPDATE river_job SET state = (metadata ->> 'forge:cron')::river_job_state,
		    finalized_at = CASE WHEN metadata ->> 'forge:cron' IN ('completed', 'cancelled', 'discarded') THEN now() END`); err != nil {
		t.Fatal(err)
	}
	for state, ended := range states {
		if ended {
			await(t, pool, 2, fmt.Sprintf(`SELECT count(*) FROM forge_cron_ticks WHERE cron = '%s' AND verdict = 'fired'`, state))
		} else {
			await(t, pool, 1, fmt.Sprintf(`SELECT count(*) FROM forge_cron_ticks WHERE cron = '%s' AND reason LIKE 'Blocked by job %% (%[2]s %%).'`, state, doing[state]))
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for state, ended := range states {
		if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = $1 AND verdict = 'fired'`, state); !ended && n != 1 {
			t.Errorf("fired %d times beside a run that is %s", n, state)
		}
	}
}
