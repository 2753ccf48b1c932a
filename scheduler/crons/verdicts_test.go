package crons

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Each verdict stands in the ledger for what really happened, with a reason
// unless the tick simply fired.
func TestEveryVerdictIsReached(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", cronsOfAllFates())
	inserter := newInserter(t, pool)
	firer := newFirer(t, pool, inserter)
	desk := newLedger(firer.options, "public", mint(t, pool, "n1"), firer.meter, slog.New(slog.DiscardHandler))
	fire := func(ago time.Duration, names ...string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), `UPDATE forge_crons SET watermark = clock_timestamp() - $2::interval WHERE name = ANY($1)`, names, ago)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := desk.Fire(t.Context(), names, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"fires", "busy", "queues", "replaces", "rests", "excludes", "refused"}
	fire(time.Second, all...)
	fire(time.Hour, "missed")
	fire(366*24*time.Hour, "saves")
	await(t, pool, 1, `SELECT count(*) FROM (SELECT WHERE clock_timestamp() > (SELECT max(tick) FROM forge_cron_ticks WHERE cron = 'busy') + interval '1 second') AS later`)
	fire(time.Second, all...) // none of the runs has ended

	manual := Manual{DB: pool, Inserter: inserter, Schema: "public"}
	if _, err := manual.Trigger(t.Context(), cronstore.Trigger{Cron: "asked", By: "a test"}); err != nil {
		t.Fatal(err)
	}
	plan, err := cronstore.PlanBackfill(t.Context(), pool, cronstore.Span{Cron: "missed", From: time.Now().Add(-30 * time.Minute), To: time.Now().Add(-20 * time.Minute), Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manual.RunBackfill(t.Context(), plan, "a test", func(int) {}); err != nil {
		t.Fatal(err)
	}

	want := map[cronstore.Verdict]string{
		cronstore.Fired: "busy", cronstore.CaughtUp: "missed", cronstore.Queued: "queues", cronstore.SkippedOverlap: "busy",
		cronstore.SkippedWindow: "missed", cronstore.SkippedLimit: "missed", cronstore.SkippedDST: "saves",
		cronstore.SkippedPaused: "rests", cronstore.SkippedExcluded: "excludes", cronstore.Replaced: "replaces",
		cronstore.Failed: "refused", cronstore.Triggered: "asked", cronstore.Backfilled: "missed",
	}
	if diff := cmp.Diff(want, verdicts(t, pool)); diff != "" {
		t.Error(diff)
	}
}

// cronsOfAllFates are named by what becomes of their ticks.
func cronsOfAllFates() map[string]cronstore.Spec {
	with := func(change func(*cronstore.Spec)) cronstore.Spec {
		spec := everySecond("allow")
		change(&spec)
		return spec
	}
	minutely := func(s *cronstore.Spec) { s.Schedule, s.CatchUpSpan = "* * * * *", config.Duration(10*time.Minute) }
	return map[string]cronstore.Spec{
		"fires":    everySecond("allow"),
		"missed":   with(minutely),
		"busy":     everySecond("skip"),
		"queues":   everySecond("queue"),
		"replaces": everySecond("replace"),
		"saves":    with(func(s *cronstore.Spec) { s.Schedule, s.Timezone, s.DSTMissing = "30 2 * * *", "Europe/Berlin", "skip" }),
		"rests":    with(func(s *cronstore.Spec) { s.Paused = true }),
		"excludes": with(func(s *cronstore.Spec) { s.Exclude = []string{"* * * * *"} }),
		"refused":  with(func(s *cronstore.Spec) { s.Queue = "no such queue!" }),
		"asked":    with(func(s *cronstore.Spec) { s.Schedule = "@manual" }),
	}
}

// verdicts returns each verdict of the ledger and the first cron that has it, and
// checks that its rows have a reason and a job where they should.
func verdicts(t *testing.T, pool *pgxpool.Pool) map[cronstore.Verdict]string {
	t.Helper()
	got := map[cronstore.Verdict]string{}
	rows, err := pool.Query(t.Context(), `
		SELECT verdict, min(cron), bool_and(reason <> ''),
		       bool_and((job_id IS NOT NULL) = (verdict IN ('fired', 'caught_up', 'triggered', 'backfilled')) OR verdict = 'replaced')
		FROM forge_cron_ticks GROUP BY verdict`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			verdict           cronstore.Verdict
			cron              string
			reasoned, hasJobs bool
		)
		if err := rows.Scan(&verdict, &cron, &reasoned, &hasJobs); err != nil {
			t.Fatal(err)
		}
		if got[verdict] = cron; reasoned == (verdict == cronstore.Fired) || !hasJobs {
			t.Errorf("%s: every row has a reason: %t, jobs where they belong: %t", verdict, reasoned, hasJobs)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}
