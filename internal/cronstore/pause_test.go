package cronstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("* * * * * *")}, false)
	exec(t, pool, `UPDATE forge_crons SET watermark = clock_timestamp() - interval '5 seconds'`)
	steps := []struct {
		name    string
		do      func(*cronstore.Store, context.Context, string, string) (cronstore.Cron, bool, error)
		changed bool
		paused  bool
	}{
		{"resume what fires", (*cronstore.Store).Resume, false, false},
		{"pause", (*cronstore.Store).Pause, true, true},
		{"pause again", (*cronstore.Store).Pause, false, true},
		{"resume", (*cronstore.Store).Resume, true, false},
	}
	began := time.Now()
	for _, step := range steps {
		if step.name == "resume" {
			exec(t, pool, `SELECT pg_sleep(2.1)`) // two ticks fall due during the pause
		}
		cron, changed, err := step.do(cronstore.New(pool), t.Context(), "a", "ada")
		if err != nil || changed != step.changed || cron.Paused() != step.paused {
			t.Fatalf("%s: changed %t, paused %t, %v", step.name, changed, cron.Paused(), err)
		}
		if got := get(t, pool, "a"); got.Paused() != step.paused || !got.NextTick.Equal(cron.NextTick) {
			t.Fatalf("%s: stored %+v", step.name, got)
		}
	}
	due, paused, _ := pending(t, get(t, pool, "a"))
	if paused < 2 || paused > seconds(began) || due-paused < 5 {
		t.Errorf("%d ticks are pending, %d of them paused; want those before the pause to fire", due, paused)
	}
	var events string
	if err := pool.QueryRow(t.Context(), `
		SELECT string_agg(concat_ws(' ', type, data ->> 'cron', data ->> 'by'), ', ' ORDER BY id)
		FROM forge_events WHERE type <> 'config_applied'`).Scan(&events); err != nil || events != "cron_paused a ada, cron_resumed a ada" {
		t.Errorf("events %q, %v", events, err)
	}
	for name, do := range map[string]func(*cronstore.Store, context.Context, string, string) (cronstore.Cron, bool, error){
		"pause": (*cronstore.Store).Pause, "resume": (*cronstore.Store).Resume,
	} {
		if _, _, err := do(cronstore.New(pool), t.Context(), "nobody", "ada"); !errors.Is(err, cronstore.ErrNotFound) {
			t.Errorf("%s nobody: %v", name, err)
		}
	}
}

// A pause by the file is ended by Resume, and returns only with an edit of the
// cron.
func TestResumeEndsPauseByFile(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	held := spec("* * * * * *")
	held.Paused = true
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": held}, false)
	if _, changed, err := cronstore.New(pool).Resume(t.Context(), "a", ""); err != nil || !changed {
		t.Fatalf("resume: %t, %v", changed, err)
	}
	apply(t, pool, "h2", map[string]cronstore.Spec{"a": held, "b": spec("@hourly")}, false)
	if a := get(t, pool, "a"); a.Paused() {
		t.Error("an edit of another cron paused it again")
	}
	edited := held
	edited.Job = "sweep"
	apply(t, pool, "h3", map[string]cronstore.Spec{"a": edited}, false)
	if a := get(t, pool, "a"); !a.Paused() {
		t.Error("an edit of the cron did not bring the file's pause back")
	}
}

// A pause by hand persists after an edit.
func TestPausePersistsAfterEdit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	began := time.Now()
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("* * * * * *")}, false)
	if _, _, err := cronstore.New(pool).Pause(t.Context(), "a", ""); err != nil {
		t.Fatal(err)
	}
	unpaused := seconds(began)
	apply(t, pool, "h2", map[string]cronstore.Spec{"a": spec("*/2 * * * * *")}, false)
	a := get(t, pool, "a")
	exec(t, pool, `SELECT pg_sleep(2.1)`)
	due, paused, _ := pending(t, a)
	if !a.Paused() || due-paused > unpaused || paused < 1 {
		t.Errorf("paused %t, %d ticks are pending, %d of them paused", a.Paused(), due, paused)
	}
}

func TestClaimATick(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("@hourly")}, false)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	exec(t, pool, `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, job_id, term, node_id, last_tick, tick_count)
		VALUES ('a', $1::timestamptz, 'skipped_window', 'Too old.', NULL, 1, 'n1', $1 + interval '3 hours', 4),
		       ('a', $1 + interval '4 hours', 'skipped_overlap', 'Job 7 ran.', NULL, 1, 'n1', NULL, 1),
		       ('a', $1 + interval '5 hours', 'fired', '', 9, 1, 'n1', NULL, 1),
		       ('a', $1 + interval '6 hours', 'queued', '', NULL, 1, 'n1', NULL, 1)`, start)
	claim := func(hour int) (cronstore.Tick, error) {
		var row cronstore.Tick
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			cron, _, err := cronstore.New(tx).LockConfigured(t.Context(), "a")
			if err != nil {
				return err
			}
			row, err = cronstore.New(tx).Claim(t.Context(), &cron, start.Add(time.Duration(hour)*time.Hour), cronstore.Triggered, "By ada")
			return err
		})
		return row, err
	}
	for _, step := range []struct {
		hour   int
		reason string
		ledger string // the rows of the range: hour, verdict, count, last
	}{
		{4, "By ada; before that it was skipped_overlap: Job 7 ran.", "0 skipped_window 4 3"},
		{1, "By ada; before that it was skipped_window: Too old.", "0 skipped_window 3 3, 1 triggered 1 -"},
		{0, "By ada; before that it was skipped_window: Too old.", "0 triggered 1 -, 1 triggered 1 -, 2 skipped_window 2 3"},
		{3, "By ada; before that it was skipped_window: Too old.", "0 triggered 1 -, 1 triggered 1 -, 2 skipped_window 1 -, 3 triggered 1 -"},
		{2, "By ada; before that it was skipped_window: Too old.", "0 triggered 1 -, 1 triggered 1 -, 2 triggered 1 -, 3 triggered 1 -"},
		{7, "By ada.", "0 triggered 1 -, 1 triggered 1 -, 2 triggered 1 -, 3 triggered 1 -"},
	} {
		row, err := claim(step.hour)
		if err != nil || row.Reason != step.reason || row.Verdict != cronstore.Triggered {
			t.Fatalf("hour %d: %+v, %v", step.hour, row, err)
		}
		var ledger string
		if err := pool.QueryRow(t.Context(), `
			SELECT string_agg(concat_ws(' ', extract(hour FROM tick AT TIME ZONE 'UTC'), verdict, tick_count,
			                            coalesce(extract(hour FROM last_tick AT TIME ZONE 'UTC')::text, '-')), ', ' ORDER BY tick)
			FROM forge_cron_ticks WHERE tick < $1`, start.Add(4*time.Hour)).Scan(&ledger); err != nil || ledger != step.ledger {
			t.Fatalf("after hour %d\ngot  %s (%v)\nwant %s", step.hour, ledger, err, step.ledger)
		}
	}
	for _, hour := range []int{5, 6} {
		if row, err := claim(hour); !errors.Is(err, cronstore.ErrTaken) || row.Tick.Hour() == 0 {
			t.Errorf("hour %d: %+v, %v; want ErrTaken", hour, row, err)
		}
	}
}
