package cronstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("* * * * * *")}, false)
	exec(t, pool, `UPDATE forge_crons SET watermark = clock_timestamp() - interval '5 seconds'`)
	steps := []struct {
		name    string
		do      func(*cronstore.Store, context.Context, string, cronstore.PauseOrder) (cronstore.Cron, bool, error)
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
		cron, changed, err := step.do(cronstore.New(pool), t.Context(), "a", cronstore.PauseOrder{By: "ada"})
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
	for name, do := range map[string]func(*cronstore.Store, context.Context, string, cronstore.PauseOrder) (cronstore.Cron, bool, error){
		"pause": (*cronstore.Store).Pause, "resume": (*cronstore.Store).Resume,
	} {
		if _, _, err := do(cronstore.New(pool), t.Context(), "nobody", cronstore.PauseOrder{By: "ada"}); !errors.Is(err, cronstore.ErrNotFound) {
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
	if _, changed, err := cronstore.New(pool).Resume(t.Context(), "a", cronstore.PauseOrder{}); err != nil || !changed {
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
	if _, _, err := cronstore.New(pool).Pause(t.Context(), "a", cronstore.PauseOrder{}); err != nil {
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

// Many crons are paused in transactions of bounded size. An undo leaves alone what somebody has
// changed since.
func TestPauseMany(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := cronstore.New(pool)
	specs := map[string]cronstore.Spec{}
	var names []string
	for i := range 450 {
		names = append(names, fmt.Sprintf("many-%03d", i))
		specs[names[i]] = spec("@daily")
	}
	apply(t, pool, "h1", specs, false)
	if _, _, err := store.Pause(t.Context(), "many-000", cronstore.PauseOrder{By: "bob", Reason: "broken"}); err != nil {
		t.Fatal(err)
	}
	var asOf time.Time
	if err := pool.QueryRow(t.Context(), `SELECT max(created_at) FROM forge_crons`).Scan(&asOf); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE forge_crons SET created_at = created_at + interval '1 hour' WHERE name = 'many-449'`)
	var read []int
	order := cronstore.PauseOrder{By: "ada", Reason: "maintenance", AsOf: asOf, Progress: func(done int) { read = append(read, done) }}
	done, err := store.PauseMany(t.Context(), append(names, "nobody", "many-001"), true, order)
	if err != nil || done.Changed != 448 || done.Operation == "" || !slices.Equal(read, []int{200, 200, 51}) {
		t.Fatalf("%+v, batches %v, %v", done, read, err)
	}
	wantChange := func(name string, want *cronstore.PauseChange) {
		t.Helper()
		got := get(t, pool, name)
		if diff := cmp.Diff(want, got.PauseChange, cmpopts.IgnoreFields(cronstore.PauseChange{}, "At")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if want != nil && got.Paused() != want.Paused {
			t.Errorf("%s is paused: %t", name, got.Paused())
		}
	}
	wantChange("many-000", &cronstore.PauseChange{Paused: true, By: "bob", Reason: "broken"})
	wantChange("many-001", &cronstore.PauseChange{Paused: true, By: "ada", Reason: "maintenance", Operation: done.Operation})
	wantChange("many-449", nil)
	if again, err := store.PauseMany(t.Context(), names[:2], true, order); err != nil || again != (cronstore.PausedMany{}) {
		t.Errorf("pause again: %+v, %v", again, err)
	}

	if _, _, err := store.Resume(t.Context(), "many-002", cronstore.PauseOrder{By: "bob"}); err != nil {
		t.Fatal(err)
	}
	undone, paused, err := store.UndoPauses(t.Context(), done.Operation, cronstore.PauseOrder{By: "ada"})
	if err != nil || paused || undone.Changed != 447 {
		t.Fatalf("undo: %+v, paused %t, %v", undone, paused, err)
	}
	wantChange("many-000", &cronstore.PauseChange{Paused: true, By: "bob", Reason: "broken"})
	wantChange("many-001", &cronstore.PauseChange{By: "ada", Reason: "undo", Operation: undone.Operation})
	wantChange("many-002", &cronstore.PauseChange{By: "bob"})
	if _, _, err := store.UndoPauses(t.Context(), done.Operation, cronstore.PauseOrder{}); !errors.Is(err, cronstore.ErrNotFound) {
		t.Errorf("undo twice: %v", err)
	}
	if redone, paused, err := store.UndoPauses(t.Context(), undone.Operation, cronstore.PauseOrder{}); err != nil || !paused || redone.Changed != 447 {
		t.Errorf("undo the undo: %+v, paused %t, %v", redone, paused, err)
	}
	var events int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_events WHERE type = 'cron_paused' AND data ->> 'reason' = 'maintenance' AND data ->> 'by' = 'ada'`).Scan(&events); err != nil || events != 448 {
		t.Errorf("%d events, %v", events, err)
	}
	var first, last, heads int // of the stream of activity, which shows the first events
	err = pool.QueryRow(t.Context(), `
		SELECT max((data ->> 'matched')::int), max((data ->> 'part')::int), count(*) FILTER (WHERE NOT data ? 'part')
		FROM forge_events WHERE data ->> 'reason' = 'maintenance'`).Scan(&first, &last, &heads)
	if err != nil || first != 451 || last != 448 || heads != 1 {
		t.Errorf("the first of %d events, to %d, says that %d crons matched, %v", heads, last, first, err)
	}
	long := cronstore.PauseOrder{Reason: strings.Repeat("é", eventstore.MaxReason+1)}
	if _, err := store.PauseMany(t.Context(), names, true, long); !errors.Is(err, eventstore.ErrReasonTooLong) {
		t.Errorf("a long reason: %v", err)
	}
}

// An undo leaves alone what somebody resumes and pauses again while the undo runs.
func TestUndoLeavesPauseMadeDuringIt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := cronstore.New(pool)
	specs := map[string]cronstore.Spec{}
	var names []string
	for i := range 201 { // two transactions
		names = append(names, fmt.Sprintf("many-%03d", i))
		specs[names[i]] = spec("@daily")
	}
	apply(t, pool, "h1", specs, false)
	done, err := store.PauseMany(t.Context(), names, true, cronstore.PauseOrder{By: "ada"})
	if err != nil || done.Changed != 201 {
		t.Fatalf("%+v, %v", done, err)
	}
	once := func(int) {
		for _, change := range []func(context.Context, string, cronstore.PauseOrder) (cronstore.Cron, bool, error){store.Resume, store.Pause} {
			if _, _, err := change(t.Context(), "many-200", cronstore.PauseOrder{By: "bob"}); err != nil {
				t.Error(err)
			}
		}
	}
	order := cronstore.PauseOrder{By: "ada", Progress: func(n int) { once(n); once = func(int) {} }}
	undone, _, err := store.UndoPauses(t.Context(), done.Operation, order)
	if err != nil || undone.Changed != 200 {
		t.Errorf("undo: %+v, %v", undone, err)
	}
	if last := get(t, pool, "many-200"); !last.Paused() || last.PauseChange.By != "bob" {
		t.Errorf("paused %t by %+v; want it paused by bob", last.Paused(), last.PauseChange)
	}
}
