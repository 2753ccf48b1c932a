package cronstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func spec(schedule string) cronstore.Spec {
	return cronstore.Spec{
		Schedule: schedule, Timezone: "UTC", Job: "tidy", Overlap: "skip", CatchUp: "latest",
		CatchUpMax: 10, CatchUpSpan: config.Duration(time.Hour), DSTMissing: "run-after", DSTRepeated: "first",
	}
}

func apply(t *testing.T, pool *pgxpool.Pool, hash string, crons map[string]cronstore.Spec, force bool) cronstore.Outcome {
	t.Helper()
	outcome, err := cronstore.New(pool).Apply(t.Context(), cronstore.Applied{
		Hash: hash, NodeID: "n1", Body: json.RawMessage(`{"hash": "` + hash + `"}`), Crons: crons,
	}, force)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

func get(t *testing.T, pool *pgxpool.Pool, name string) cronstore.Cron {
	t.Helper()
	cron, err := cronstore.New(pool).Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return cron
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// seconds returns how many whole seconds may have begun since then.
func seconds(since time.Time) int { return int(time.Since(since)/time.Second) + 1 }

// pending returns the number of seconds after the watermark at which the cron was
// due until now, and how many of them were paused or removed.
func pending(t *testing.T, cron cronstore.Cron) (due, paused, removed int) {
	t.Helper()
	timeline, err := cron.Timeline()
	if err != nil {
		t.Fatal(err)
	}
	for tick := range timeline.Ticks(cron.Watermark, time.Now()) {
		due++
		if tick.Paused {
			paused++
		}
		if tick.Removed {
			removed++
		}
	}
	return due, paused, removed
}

func TestApplyByHash(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	first := map[string]cronstore.Spec{"a": spec("@hourly"), "b": spec("@hourly")}
	second := map[string]cronstore.Spec{"b": spec("@daily"), "c": spec("@hourly")}
	steps := []struct {
		name, hash string
		crons      map[string]cronstore.Spec
		force      bool
		want       cronstore.Outcome
	}{
		{"new", "h1", first, false, cronstore.Outcome{State: cronstore.StateApplied, InForce: "h1", Added: []string{"a", "b"}}},
		{"in force", "h1", first, false, cronstore.Outcome{State: cronstore.StateInForce, InForce: "h1"}},
		{"in force, forced", "h1", first, true, cronstore.Outcome{State: cronstore.StateInForce, InForce: "h1"}},
		{"newer", "h2", second, false, cronstore.Outcome{
			State: cronstore.StateApplied, InForce: "h2", Added: []string{"c"}, Changed: []string{"b"}, Removed: []string{"a"},
		}},
		{"superseded", "h1", first, false, cronstore.Outcome{State: cronstore.StateSuperseded, InForce: "h2"}},
		{"superseded, forced", "h1", first, true, cronstore.Outcome{
			State: cronstore.StateApplied, InForce: "h1", Added: []string{"a"}, Changed: []string{"b"}, Removed: []string{"c"},
		}},
		{"superseded by a roll-back", "h2", second, false, cronstore.Outcome{State: cronstore.StateSuperseded, InForce: "h1"}},
	}
	for _, step := range steps {
		if diff := cmp.Diff(step.want, apply(t, pool, step.hash, step.crons, step.force)); diff != "" {
			t.Fatalf("%s: %s", step.name, diff)
		}
	}
	inForce, err := cronstore.New(pool).ConfigInForce(t.Context())
	if err != nil || inForce.Hash != "h1" || inForce.AppliedBy != "n1" || string(inForce.Body) != `{"hash": "h1"}` {
		t.Errorf("in force: %+v, %v", inForce, err)
	}
	var configs []string
	err = pool.QueryRow(t.Context(), `SELECT array_agg(hash ORDER BY applied_at DESC) FROM forge_config`).Scan(&configs)
	if err != nil || len(configs) != 2 || configs[1] != "h2" {
		t.Errorf("configurations: %+v, %v", configs, err)
	}
	crons, err := cronstore.New(pool).List(t.Context())
	if err != nil || len(crons) != 2 || crons[0].Name != "a" || crons[1].Spec.Schedule != "@hourly" {
		t.Errorf("crons: %+v, %v", crons, err)
	}
	if section, err := cronstore.New(pool).SectionInForce(t.Context(), "hash"); err != nil || string(section) != `{"hash": "h1"}` {
		t.Errorf("section %s, %v", section, err)
	}
	checkOutline(t, pool, crons)
	var events int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_events WHERE type = 'config_applied'`).Scan(&events); err != nil || events != 3 {
		t.Errorf("%d events, want 3 (%v)", events, err)
	}
}

// checkOutline checks the fields of a list, and the complete row of one of its
// crons.
func checkOutline(t *testing.T, pool *pgxpool.Pool, crons []cronstore.Cron) {
	t.Helper()
	var outlined []cronstore.Outlined
	for _, step := range []struct {
		change       string
		jobB         string
		aWaits, bOff bool
	}{
		{`UPDATE forge_crons SET spec = spec || '{"paused": true}' WHERE name = 'b'`, crons[1].Spec.Job, true, true},
		{`UPDATE forge_crons SET spec = spec || '{"job": "other"}' WHERE name = 'b'`, crons[1].Spec.Job, true, true}, // the definition that the caller already has
		{`UPDATE forge_crons SET spec = spec || '{"paused": false}', updated_at = updated_at + interval '1 second' WHERE name = 'b'`, "other", true, false},
		{`UPDATE forge_crons SET paused_at = '2026-01-01Z' WHERE name = 'b'`, "other", true, true},
		{`UPDATE forge_crons SET paused_at = NULL, next_tick = CASE name WHEN 'b' THEN next_tick END`, "other", false, false},
	} {
		exec(t, pool, step.change)
		var err error
		if outlined, err = cronstore.New(pool).Outline(t.Context(), outlined); err != nil || len(outlined) != len(crons) {
			t.Fatalf("%s: outlined %+v, %v", step.change, outlined, err)
		}
		a, b := outlined[0], outlined[1]
		if a.Name != "a" || a.Job != crons[0].Spec.Job || a.Paused || a.NextTick.Equal(crons[0].NextTick) != step.aWaits {
			t.Errorf("%s: outlined %+v of %+v", step.change, a, crons[0])
		}
		if b.Name != "b" || b.Job != step.jobB || b.Paused != step.bOff || !b.NextTick.Equal(crons[1].NextTick) {
			t.Errorf("%s: outlined %+v of %+v", step.change, b, crons[1])
		}
	}
	some, err := cronstore.New(pool).Some(t.Context(), []string{"b", "nobody"})
	if err != nil || len(some) != 1 || some[0].Name != "b" || some[0].Spec.Schedule != "@hourly" {
		t.Errorf("some: %+v, %v", some, err)
	}
	if none, err := cronstore.New(pool).Some(t.Context(), nil); err != nil || len(none) != 0 {
		t.Errorf("none: %+v, %v", none, err)
	}
}

func TestApplyNotifiesLeader(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), `LISTEN "public.forge_cron"`); err != nil {
		t.Fatal(err)
	}
	apply(t, pgtest.Connect(t, url), "h1", map[string]cronstore.Spec{"a": spec("@hourly")}, false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := conn.WaitForNotification(ctx); err != nil {
		t.Error(err)
	}
}

func TestApplyRejectsInvalidSchedule(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := cronstore.New(pool).Apply(t.Context(), cronstore.Applied{
		Hash: "h1", NodeID: "n1", Crons: map[string]cronstore.Spec{"a": spec("@hourly"), "b": spec("every so often")},
	}, false)
	if err == nil {
		t.Fatal("applied")
	}
	if _, err := cronstore.New(pool).ConfigInForce(t.Context()); !errors.Is(err, cronstore.ErrNotFound) {
		t.Errorf("in force: %v, want ErrNotFound", err)
	}
}

func TestNewCronStartsNow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	before := time.Now()
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("@hourly"), "m": spec("@manual")}, false)
	a, m := get(t, pool, "a"), get(t, pool, "m")
	if a.Watermark.Before(before.Add(-time.Minute)) || !a.NextTick.Equal(a.Watermark.Truncate(time.Hour).Add(time.Hour)) {
		t.Errorf("watermark %s, next tick %s", a.Watermark, a.NextTick)
	}
	if !m.NextTick.IsZero() {
		t.Errorf("a manual cron is due %s", m.NextTick)
	}
}

func TestChangedPolicyKeepsWatermark(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("* * * * * *")}, false)
	old := get(t, pool, "a")
	changed := spec("* * * * * *")
	changed.Job, changed.Args, changed.CatchUp = "sweep", json.RawMessage(`{"n":1}`), "all"
	apply(t, pool, "h2", map[string]cronstore.Spec{"a": changed}, false)
	got := get(t, pool, "a")
	if !got.Watermark.Equal(old.Watermark) || !got.NextTick.Equal(old.NextTick) || got.Spec.Job != "sweep" {
		t.Errorf("watermark %s, want %s; next %s, want %s; job %s", got.Watermark, old.Watermark, got.NextTick, old.NextTick, got.Spec.Job)
	}
	if len(got.Earlier) != 0 || !got.UpdatedAt.After(old.UpdatedAt) {
		t.Errorf("eras %v, updated %s after %s", got.Earlier, got.UpdatedAt, old.UpdatedAt)
	}
}

// The old schedule has a tick every second that no leader has recorded.
func TestChangedScheduleLosesNoTick(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("* * * * * *")}, false)
	exec(t, pool, `UPDATE forge_crons SET watermark = clock_timestamp() - interval '10 seconds'`)
	old := get(t, pool, "a")
	apply(t, pool, "h2", map[string]cronstore.Spec{"a": spec("@yearly")}, false)
	got := get(t, pool, "a")
	if !got.Watermark.Equal(old.Watermark) || got.NextTick.After(time.Now()) {
		t.Errorf("watermark %s, want %s; next tick %s", got.Watermark, old.Watermark, got.NextTick)
	}
	if due, _, _ := pending(t, got); due < 10 || due > seconds(old.Watermark) {
		t.Errorf("%d ticks are pending, want those of 10 s", due)
	}
	// A pause by the file ends another era; the ticks of the first era are not
	// paused.
	paused, began := spec("* * * * * *"), time.Now()
	paused.Paused = true
	apply(t, pool, "h3", map[string]cronstore.Spec{"a": paused}, false)
	exec(t, pool, `SELECT pg_sleep(1.1)`)
	apply(t, pool, "h4", map[string]cronstore.Spec{"a": spec("@yearly")}, false)
	due, skipped, _ := pending(t, get(t, pool, "a"))
	if due-skipped < 10 || skipped < 1 || skipped > seconds(began) {
		t.Errorf("%d ticks are pending, %d of them paused", due, skipped)
	}
	// Once the watermark is past the eras, they are dropped.
	exec(t, pool, `UPDATE forge_crons SET watermark = clock_timestamp()`)
	apply(t, pool, "h5", map[string]cronstore.Spec{"a": spec("@daily")}, false)
	if eras := get(t, pool, "a").Earlier; len(eras) != 0 {
		t.Errorf("settled eras are kept: %v", eras)
	}
}

func TestChangedScheduleStartsNow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("@yearly")}, false)
	exec(t, pool, `UPDATE forge_crons SET watermark = clock_timestamp() - interval '10 seconds'`)
	before := time.Now().Add(-time.Second)
	apply(t, pool, "h2", map[string]cronstore.Spec{"a": spec("* * * * * *")}, false)
	got := get(t, pool, "a")
	if got.Watermark.Before(before) || len(got.Earlier) != 0 {
		t.Errorf("watermark %s, eras %v: nothing was pending", got.Watermark, got.Earlier)
	}
}

func TestRemovedAndAddedAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	crons := map[string]cronstore.Spec{"a": spec("* * * * * *")}
	apply(t, pool, "h1", crons, false)
	began := time.Now().Add(-5 * time.Second)
	exec(t, pool, `UPDATE forge_crons SET watermark = clock_timestamp() - interval '5 seconds'`)
	apply(t, pool, "h2", nil, false)
	most := seconds(began)
	if gone := get(t, pool, "a"); gone.RemovedAt.IsZero() || gone.NextTick.After(gone.RemovedAt) {
		t.Errorf("removed %s, next tick %s", gone.RemovedAt, gone.NextTick)
	}
	// The cron has had ten seconds without ticks since then.
	exec(t, pool, `UPDATE forge_crons SET removed_at = removed_at - interval '10 seconds', watermark = watermark - interval '10 seconds'`)
	gone := get(t, pool, "a")
	due, _, removed := pending(t, gone)
	if due != removed || due < 5 || due > most {
		t.Errorf("%d ticks are pending, %d of a removed cron", due, removed)
	}
	if listed, err := cronstore.New(pool).List(t.Context()); err != nil || len(listed) != 0 {
		t.Errorf("listed %v, %v", listed, err)
	}
	apply(t, pool, "h1", crons, true)
	back := get(t, pool, "a")
	again, _, removed := pending(t, back)
	if !back.RemovedAt.IsZero() || removed != 0 || again < due+10 || !back.Watermark.Equal(gone.Watermark) {
		t.Errorf("removed %q, %d ticks pending of %d before and 10 since, %d not to be fired; watermark %s, was %s",
			back.RemovedAt, again, due, removed, back.Watermark, gone.Watermark)
	}
}

func TestRemovedWithNothingPending(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("@yearly")}, false)
	apply(t, pool, "h2", nil, false)
	if next := get(t, pool, "a").NextTick; !next.IsZero() {
		t.Errorf("next tick %s", next)
	}
}

func TestTicksAndLast(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("@hourly"), "b": spec("@hourly")}, false)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	exec(t, pool, `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, term, node_id, lateness_ms, last_tick, tick_count)
		SELECT 'a', $1::timestamptz + i * interval '1 hour', 'skipped_window', 'Why not.', 3, 'n1', 5, $1::timestamptz, 7
		FROM generate_series(0, 4) AS i`, start)
	for _, limit := range []int{2, 100} {
		own, err := cronstore.New(pool).Ticks(t.Context(), "a", time.Time{}, limit)
		if err != nil {
			t.Fatal(err)
		}
		newest, err := cronstore.New(pool).NewestTicks(t.Context(), []string{"nobody", "a"}, limit)
		if diff := cmp.Diff(map[string][]cronstore.Tick{"a": own}, newest); diff != "" || err != nil {
			t.Errorf("the newest %d ticks (-want +got), %v:\n%s", limit, err, diff)
		}
	}
	page, err := cronstore.New(pool).Ticks(t.Context(), "a", start.Add(4*time.Hour), 2)
	if err != nil || len(page) != 2 || !page[0].Tick.Equal(start.Add(3*time.Hour)) || page[0].Count != 7 {
		t.Errorf("page %+v, %v", page, err)
	}
	crons, err := cronstore.New(pool).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last := crons[0].Last; last == nil || !last.Tick.Equal(start.Add(4*time.Hour)) || last.LatenessMS != 5 || last.Verdict != cronstore.SkippedWindow {
		t.Errorf("last tick of a: %+v", last)
	}
	if crons[1].Last != nil {
		t.Errorf("last tick of b: %+v", crons[1].Last)
	}
	if _, err := cronstore.New(pool).Get(t.Context(), "nobody"); !errors.Is(err, cronstore.ErrNotFound) {
		t.Errorf("get nobody: %v", err)
	}
}

// Nodes that start concurrently with one file apply it once.
func TestConcurrentApply(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	states := make(chan cronstore.State, 8)
	for range cap(states) {
		go func() {
			outcome, err := cronstore.New(pool).Apply(t.Context(), cronstore.Applied{
				Hash: "h1", NodeID: "n1", Crons: map[string]cronstore.Spec{"a": spec("@hourly")},
			}, false)
			if err != nil {
				t.Error(err)
			}
			states <- outcome.State
		}()
	}
	applied := 0
	for range cap(states) {
		if <-states == cronstore.StateApplied {
			applied++
		}
	}
	if applied != 1 {
		t.Errorf("applied %d times, want once", applied)
	}
}

// With pages of any size, each cron is on one page; a removed cron with no ticks to
// record is on none.
func TestListUpcomingReadsAllPages(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	crons := map[string]cronstore.Spec{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		crons[name] = spec("@hourly")
	}
	apply(t, pool, "h1", crons, false)
	exec(t, pool, `UPDATE forge_crons SET removed_at = now(), next_tick = NULL WHERE name IN ('b', 'd')`)
	exec(t, pool, `INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id) VALUES ('d', now(), 'queued', 1, 'n1')`)
	for most := range 7 {
		var got []string
		for after, pages := "", 0; pages == 0 || after != ""; pages++ {
			page, err := cronstore.New(pool).ListUpcoming(t.Context(), after, most+1)
			if err != nil || page.Read > most+1 || pages > 5 {
				t.Fatalf("page %d of %d crons: %+v, %v", pages, most+1, page, err)
			}
			for _, u := range page.Crons {
				got = append(got, u.Name)
				if u.Queued != (u.Name == "d") || u.Next.IsZero() {
					t.Errorf("%+v", u)
				}
			}
			after = page.Next
		}
		if diff := cmp.Diff([]string{"a", "c", "d", "e"}, got); diff != "" {
			t.Errorf("pages of %d: %s", most+1, diff)
		}
	}
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := cronstore.New(pool)
	if d, err := store.Definition(t.Context(), "tidy"); err != nil || d != nil || d.Text() != "" {
		t.Errorf("before anything is applied: %+v, %v", d, err)
	}
	body := `{"jobs": {
		"tidy": {"kind": "shell", "command": ["sh", "-c", "rm -r it's/*", ""], "cwd": "/srv", "env": {"A": "b"}},
		"ping": {"kind": "http", "method": "POST", "url": "https://example.com/?a=1"},
		"count": {"kind": "sql", "statement": "SELECT 1"},
		"own": {"kind": "go"}}}`
	if _, err := store.Apply(t.Context(), cronstore.Applied{Hash: "a", NodeID: "n1", Body: json.RawMessage(body)}, false); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{
		"tidy": `sh -c 'rm -r it'\''s/*' ''`, "ping": "POST https://example.com/?a=1", "count": "SELECT 1", "own": "", "absent": "",
	} {
		d, err := store.Definition(t.Context(), kind)
		if err != nil || d.Text() != want {
			t.Errorf("%s runs %q (%v), want %q", kind, d.Text(), err, want)
		}
	}
}

// The leader notices an edit even if the database's clock was set back before it.
func TestEditionChangesAfterClockIsSetBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := cronstore.New(pool)
	apply(t, pool, "one", map[string]cronstore.Spec{"a": spec("@yearly"), "b": spec("@yearly")}, false)
	exec(t, pool, `UPDATE forge_crons SET updated_at = updated_at + interval '1 hour' WHERE name = 'a'`) // as if it were set back now
	before, err := store.Edition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, pool, "two", map[string]cronstore.Spec{"a": spec("@yearly"), "b": spec("@every 1s")}, false)
	after, err := store.Edition(t.Context())
	if err != nil || after == before {
		t.Errorf("edition %q before and %q after an edit, %v", before, after, err)
	}
}
