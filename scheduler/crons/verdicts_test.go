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

// Each verdict is recorded in its situation, with a reason unless the tick fired on time.
func TestEveryVerdictIsRecorded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", cronsForEveryVerdict())
	inserter := newInserter(t, pool)
	firer := newFirer(t, pool, inserter)
	ledger := newLedger(firer.options, makeLeader(t, pool, "n1"), newTermCache(), firer.meter, slog.New(slog.DiscardHandler))
	fire := func(ago time.Duration, names ...string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), `UPDATE forge_crons SET watermark = clock_timestamp() - $2::interval WHERE name = ANY($1)`, names, ago)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.Fire(t.Context(), names, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"fires", "busy", "queues", "replaces", "paused", "excluded", "rejected"}
	fire(time.Second, all...)
	fire(time.Hour, "missed")
	fire(366*24*time.Hour, "summertime")
	await(t, pool, 1, `SELECT count(*) FROM (SELECT WHERE clock_timestamp() > (SELECT max(tick) FROM forge_cron_ticks) + interval '1 second') AS later`)
	fire(time.Second, all...) // no run has ended

	manual := Manual{DB: pool, Inserter: inserter}
	if _, err := manual.Trigger(t.Context(), cronstore.Trigger{Cron: "triggered", By: "a test"}); err != nil {
		t.Fatal(err)
	}
	plan, err := cronstore.New(pool).BackfillTicks(t.Context(), cronstore.Span{Cron: "missed", From: time.Now().Add(-30 * time.Minute), To: time.Now().Add(-20 * time.Minute), Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manual.Backfill(t.Context(), plan, "a test", func(int) {}); err != nil {
		t.Fatal(err)
	}

	want := map[cronstore.Verdict]string{
		cronstore.Fired: "busy", cronstore.CaughtUp: "missed", cronstore.Queued: "queues", cronstore.SkippedOverlap: "busy",
		cronstore.SkippedWindow: "missed", cronstore.SkippedLimit: "missed", cronstore.SkippedDST: "summertime",
		cronstore.SkippedPaused: "paused", cronstore.SkippedExcluded: "excluded", cronstore.Replaced: "replaces",
		cronstore.Failed: "rejected", cronstore.Triggered: "triggered", cronstore.Backfilled: "missed",
	}
	if diff := cmp.Diff(want, verdicts(t, pool)); diff != "" {
		t.Error(diff)
	}
}

// cronsForEveryVerdict returns crons whose names say what happens to their ticks.
func cronsForEveryVerdict() map[string]cronstore.Spec {
	with := func(change func(*cronstore.Spec)) cronstore.Spec {
		spec := everySecond("allow")
		change(&spec)
		return spec
	}
	minutely := func(s *cronstore.Spec) { s.Schedule, s.CatchUpSpan = "* * * * *", config.Duration(10*time.Minute) }
	return map[string]cronstore.Spec{
		"fires":      everySecond("allow"),
		"missed":     with(minutely),
		"busy":       everySecond("skip"),
		"queues":     everySecond("queue"),
		"replaces":   everySecond("replace"),
		"summertime": with(func(s *cronstore.Spec) { s.Schedule, s.Timezone, s.DSTMissing = "30 2 * * *", "Europe/Berlin", "skip" }),
		"paused":     with(func(s *cronstore.Spec) { s.Paused = true }),
		"excluded":   with(func(s *cronstore.Spec) { s.Exclude = []string{"* * * * *"} }),
		"rejected":   with(func(s *cronstore.Spec) { s.Queue = "no such queue!" }),
		"triggered":  with(func(s *cronstore.Spec) { s.Schedule = "@manual" }),
	}
}

// verdicts returns each verdict in the ledger with the first cron that has it. It checks
// the reasons and the jobs of the rows.
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
