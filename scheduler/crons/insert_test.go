package crons

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// One job that cannot be inserted does not keep other crons from firing.
func TestRejectedJobFailsOnlyItsTick(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	crons := map[string]cronstore.Spec{}
	for i := range 20 {
		crons[fmt.Sprintf("c%02d", i)] = everySecond("allow")
	}
	bad, worse := everySecond("allow"), everySecond("allow")
	bad.Queue, worse.Priority = "no such queue!", 9
	crons["bad"], crons["worse"] = bad, worse
	apply(t, pool, "h1", crons)
	firer := newFirer(t, pool, newInserter(t, pool))
	stop := lead(t, firer, makeLeader(t, pool, "n1"))
	await(t, pool, 22, ledgerCountSQL)
	failures := firer.meter.metrics.CronFailures.WithLabelValues("bad")
	for deadline := time.Now().Add(waitTimeout); testutil.ToFloat64(failures) == 0; {
		if time.Now().After(deadline) { // the metric changes after the commit is acknowledged
			t.Fatal("forge_cron_failures_total is 0")
		}
		time.Sleep(time.Millisecond)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks
		WHERE (verdict = 'failed') <> (cron IN ('bad', 'worse')) OR (verdict = 'failed') <> (job_id IS NULL)
		   OR (verdict = 'failed') <> (reason LIKE 'The job could not be inserted: %')`); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
}

// A job that no table takes is not rejected: its tick fires once the table is back.
func TestTicksWaitForMissingTable(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": everySecond("allow")})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 1, ledgerCountSQL)
	execute := func(sql string) {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	execute(`ALTER TABLE river_job RENAME TO gone`)
	await(t, pool, 2, `SELECT floor(extract(epoch FROM clock_timestamp() - max(tick)))::bigint FROM forge_cron_ticks`) // one was due
	execute(`ALTER TABLE gone RENAME TO river_job`)
	await(t, pool, count(t, pool, ledgerCountSQL)+2, ledgerCountSQL)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if wrong := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'failed' OR job_id IS NULL`); wrong != 0 {
		t.Errorf("%d ticks without a job", wrong)
	}
}

func TestTwoThousandCronsFireAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	crons := map[string]cronstore.Spec{}
	for i := range 2000 {
		crons[fmt.Sprintf("c%04d", i)] = everySecond("skip")
	}
	apply(t, pool, "h1", crons)
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 4000, ledgerCountSQL)
	await(t, pool, 2000, `SELECT count(DISTINCT cron) FROM forge_cron_ticks`) // a slow machine records several ticks of some crons before the first of others
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if missing := 2000 - count(t, pool, `SELECT count(DISTINCT metadata ->> 'forge:cron') FROM river_job`); missing != 0 {
		t.Errorf("%d crons without a job", missing)
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	var p99 float64
	if err := pool.QueryRow(t.Context(), `
		SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY lateness_ms) FROM forge_cron_ticks`).Scan(&p99); err != nil {
		t.Fatal(err)
	}
	t.Logf("lateness of 2,000 crons a second: p99 %.0f ms", p99)
}

// River's limiter drops the notification of the second of two inserts. The listener
// receives both.
func TestEachBatchNotifiesItsQueues(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), `LISTEN "public.river_insert"`); err != nil {
		t.Fatal(err)
	}
	crons := map[string]cronstore.Spec{"c": everySecond("allow")}
	apply(t, pool, "h1", crons)
	firer := newFirer(t, pool, newInserter(t, pool))
	tickLedger := newLedger(firer.options, makeLeader(t, pool, "n1"), newTermCache(), firer.meter, firer.options.Logger)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for range 2 {
		rewind(t, pool, 3*time.Second)
		if _, err := pool.Exec(ctx, `DELETE FROM forge_cron_ticks`); err != nil {
			t.Fatal(err)
		}
		if _, err := tickLedger.Fire(ctx, []string{"c"}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		notification, err := pgtest.WaitForNotification(ctx, conn)
		if err != nil {
			t.Fatalf("a batch was not announced: %v", err)
		}
		if notification.Payload != `{"queue": "default"}` {
			t.Errorf("payload %s", notification.Payload)
		}
	}
}

func TestIsTransientAcceptsAnySQLSTATE(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{"": true, "5": true, "57": true, "57P01": true, "40001": true, "2": true, "42P01": true, "42501": true, "42703": false, "23505": false, "22": false} {
		if got := isTransient(&pgconn.PgError{Code: code}); got != want {
			t.Errorf("isTransient(%q) = %v, want %v", code, got, want)
		}
	}
	if isTransient(&pgconn.PgError{Code: "42P01", Where: "PL/pgSQL function audit() line 1 at SQL statement"}) {
		t.Error("a table that a trigger lacks holds all ticks back")
	}
}
