package crons

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func manualOn(t *testing.T, pool *pgxpool.Pool) Manual {
	t.Helper()
	return Manual{DB: pool, Inserter: newInserter(t, pool)}
}

func TestTriggerRunsCronNow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	spec := everySecond("skip")
	spec.Schedule, spec.Paused, spec.Args = "@yearly", true, json.RawMessage(`{"n": 1}`)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
	for _, args := range []json.RawMessage{nil, json.RawMessage(`{"n": 2}`)} {
		row, err := manualOn(t, pool).Trigger(t.Context(), cronstore.Trigger{Cron: "c", By: "ada", Args: args})
		if err != nil || row.Verdict != cronstore.Triggered || row.JobID == 0 {
			t.Fatalf("%+v, %v", row, err)
		}
		if stored, err := cronstore.New(pool).FindTick(t.Context(), "c", row.Tick); err != nil || row != stored || row.RecordedAt.IsZero() {
			t.Errorf("returned %+v\nstored   %+v, %v", row, stored, err)
		}
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks AS t JOIN river_job AS j ON j.id = t.job_id
		WHERE t.verdict <> 'triggered' OR t.reason <> 'Triggered by ada.' OR j.state <> 'available' OR j.metadata ? 'forge:term'
		   OR j.metadata ->> 'forge:cron' <> 'c' OR (j.metadata ->> 'forge:tick')::timestamptz <> t.tick`); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	if n := count(t, pool, `SELECT count(*) FROM river_job WHERE args = '{"n": 1}' OR args = '{"n": 2}'`); n != 2 {
		t.Errorf("%d jobs have the right args", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM forge_events WHERE type = 'cron_triggered' AND data ->> 'job_id' IS NOT NULL`); n != 2 {
		t.Errorf("%d events", n)
	}
}

// Catalogue entry 70: the arguments of a trigger must match the schema of the cron's job.
func TestTriggerChecksArgsAgainstSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := cronstore.New(pool).Apply(t.Context(), cronstore.Applied{
		Hash: "h1", NodeID: "n1", Crons: map[string]cronstore.Spec{"c": everySecond("skip")},
		Body: []byte(`{"jobs": {"tidy": {"schema": {"properties": {"days": {"type": "integer"}}}}}}`),
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	manual := manualOn(t, pool)
	_, err = manual.Trigger(t.Context(), cronstore.Trigger{Cron: "c", Args: json.RawMessage(`{"days": "7"}`)})
	wrong, ok := errors.AsType[config.SchemaError](err)
	if want := "args.days: wrong type (got string); want integer"; !ok || wrong.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if n := count(t, pool, `SELECT (SELECT count(*) FROM river_job) + (SELECT count(*) FROM forge_cron_ticks)`); n != 0 {
		t.Errorf("%d rows of a rejected trigger", n)
	}
	if _, err := manual.Trigger(t.Context(), cronstore.Trigger{Cron: "c", Args: json.RawMessage(`{"days": 7}`)}); err != nil {
		t.Error(err)
	}
}

func TestTriggerRejectsInvalidTicks(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	spec := everySecond("skip")
	spec.Schedule = "@hourly"
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
	hour := time.Now().UTC().Truncate(time.Hour)
	manual := manualOn(t, pool)
	if row, err := manual.Trigger(t.Context(), cronstore.Trigger{Cron: "c", At: hour}); err != nil || !row.Tick.Equal(hour) {
		t.Fatalf("a tick that nobody recorded: %+v, %v", row, err)
	}
	for _, test := range []struct {
		name string
		run  cronstore.Trigger
		want error
	}{
		{"run already", cronstore.Trigger{Cron: "c", At: hour}, cronstore.ErrTaken},
		{"not due", cronstore.Trigger{Cron: "c", At: hour.Add(-time.Minute)}, cronstore.ErrNotDue},
		{"future", cronstore.Trigger{Cron: "c", At: hour.Add(2 * time.Hour)}, cronstore.ErrFuture},
		{"unknown", cronstore.Trigger{Cron: "unknown"}, cronstore.ErrNotFound},
	} {
		if _, err := manual.Trigger(t.Context(), test.run); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	if jobs := count(t, pool, `SELECT count(*) FROM river_job`); jobs != 1 {
		t.Errorf("%d jobs, want one", jobs)
	}
}

// A tick runs once, even if several clients trigger it repeatedly while the leader
// records it.
func TestConcurrentTriggersRunTickOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("allow")})
	rewind(t, pool, 10*time.Second)
	first := time.Now().UTC().Truncate(time.Second).Add(-5 * time.Second)
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	manual := manualOn(t, pool)
	var triggers sync.WaitGroup
	for range 4 {
		triggers.Go(func() {
			for i := range 6 {
				_, err := manual.Trigger(t.Context(), cronstore.Trigger{Cron: "c", At: first.Add(time.Duration(i) * time.Second)})
				if err != nil && !errors.Is(err, cronstore.ErrTaken) && !errors.Is(err, cronstore.ErrFuture) {
					t.Error(err)
				}
			}
		})
	}
	triggers.Wait()
	await(t, pool, 9, ledgerCountSQL)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if holes := count(t, pool, holesSQL, "c"); holes != 0 {
		t.Errorf("%d seconds lost or doubled", holes)
	}
	if jobs, ticks := count(t, pool, `SELECT count(*) FROM river_job`), count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks WHERE job_id IS NOT NULL`); jobs != ticks {
		t.Errorf("%d jobs for %d ticks", jobs, ticks)
	}
}

func TestPausedTicksAreRecorded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("allow")})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
	await(t, pool, 1, ledgerCountSQL)
	if _, _, err := cronstore.New(pool).Pause(t.Context(), "c", cronstore.PauseOrder{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `SELECT pg_sleep(2.1)`); err != nil {
		t.Fatal(err)
	}
	if _, _, err := cronstore.New(pool).Resume(t.Context(), "c", cronstore.PauseOrder{}); err != nil {
		t.Fatal(err)
	}
	// The change is notified at once. Without the notification, the leader would check a
	// paused cron after a minute.
	await(t, pool, 2, `SELECT coalesce(sum(tick_count), 0) FROM forge_cron_ticks WHERE verdict = 'skipped_paused'`)
	await(t, pool, 1, `
		SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired' AND tick > (
		    SELECT max(tick) FROM forge_cron_ticks WHERE verdict = 'skipped_paused')`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if holes := count(t, pool, holesSQL, "c"); holes != 0 {
		t.Errorf("%d seconds lost or doubled", holes)
	}
}

// A run at an instant that is no tick leaves the range around it as it is: the clock was set back
// after the range was recorded.
func TestTriggerInsideRangeThatDoesNotCountIt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("allow")})
	_, err := pool.Exec(t.Context(), `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, term, node_id, recorded_at, lateness_ms, last_tick, tick_count)
		SELECT 'c', s, 'skipped_paused', '', 1, 'n1', now(), 0, s + interval '1 hour', 3601
		FROM (SELECT date_trunc('second', now()) - interval '30 minutes') AS r (s)`)
	if err != nil {
		t.Fatal(err)
	}
	row, err := manualOn(t, pool).Trigger(t.Context(), cronstore.Trigger{Cron: "c", By: "ada"})
	if err != nil || row.JobID == 0 || row.Reason != "Triggered by ada." {
		t.Errorf("%+v, %v", row, err)
	}
	if n := count(t, pool, `SELECT tick_count FROM forge_cron_ticks WHERE last_tick - tick = interval '1 hour'`); n != 3601 {
		t.Errorf("the range counts %d ticks", n)
	}
}
