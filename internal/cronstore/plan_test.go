package cronstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

const aDay = 24 * time.Hour

func foresee(t *testing.T, pool *pgxpool.Pool, crons map[string]cronstore.Spec, ahead time.Duration) map[string]cronstore.RunChange {
	t.Helper()
	planner, err := cronstore.New(pool).Planner(t.Context(), crons)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := planner.Runs(t.Context(), ahead, 2)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]cronstore.RunChange{}
	for _, change := range changes {
		if kept := len(change.FirstAppearing); kept != min(2, change.Appear) {
			t.Errorf("%s: %d of %d runs that appear are named", change.Cron, kept, change.Appear)
		}
		found[change.Cron] = change
	}
	return found
}

func TestPlannerComparesRuns(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	before := map[string]cronstore.Spec{
		"same": spec("@hourly"), "denser": spec("0 */2 * * *"), "gone": spec("@daily"), "held": spec("@hourly"),
		"noted": spec("@hourly"), "paused": spec("@hourly"),
	}
	apply(t, pool, "one", before, false)
	if _, _, err := cronstore.New(pool).Pause(t.Context(), "held", cronstore.PauseOrder{}); err != nil {
		t.Fatal(err)
	}
	after := map[string]cronstore.Spec{
		"same": spec("@hourly"), "denser": spec("0 * * * *"), "new": spec("30 4 * * *"), "held": spec("@daily"),
		"noted": spec("@hourly"), "paused": spec("@hourly"),
	}
	noted, halted, fewer := after["noted"], after["paused"], after["new"]
	noted.Args = []byte(`{"a": 1}`)
	halted.Paused = true
	fewer.Exclude = []string{"* * * * SUN"}
	after["noted"], after["paused"], after["new"] = noted, halted, fewer
	changes := foresee(t, pool, after, 7*aDay)
	for name, want := range map[string][2]int{
		"denser": {84, 0}, "gone": {0, 7}, "new": {6, 0}, "paused": {0, 168},
	} {
		change := changes[name]
		if change.Appear != want[0] || change.Vanish != want[1] {
			t.Errorf("%s: %d appear and %d vanish, want %v", name, change.Appear, change.Vanish, want)
		}
		delete(changes, name)
	}
	if len(changes) > 0 {
		t.Errorf("runs change that do not: %+v", changes)
	}
	if got := foresee(t, pool, before, 7*aDay); len(got) > 0 {
		t.Errorf("the file in force changes runs: %+v", got)
	}
}

// The prediction equals the result of applying.
func TestPlannerPredictsApply(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "one", map[string]cronstore.Spec{"a": spec("*/7 * * * *"), "b": spec("@hourly")}, false)
	edited := map[string]cronstore.Spec{"a": spec("*/11 3-9 * * *"), "c": spec("15 */5 * * *")}
	first := foresee(t, pool, edited, 3*aDay)
	apply(t, pool, "two", edited, false)
	if left := foresee(t, pool, edited, 3*aDay); len(left) > 0 {
		t.Errorf("after applying: %+v", left)
	}
	back := foresee(t, pool, map[string]cronstore.Spec{"a": spec("*/7 * * * *"), "b": spec("@hourly")}, 3*aDay)
	for name, change := range first {
		if got := back[name]; got.Appear != change.Vanish || got.Vanish != change.Appear {
			t.Errorf("%s: %+v there, %+v back", name, change, got)
		}
	}
}

func TestPlannerBoundsEvaluatedTicks(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	change := foresee(t, pool, map[string]cronstore.Spec{"second": spec("@every 1s")}, 366*aDay)["second"]
	if change.Appear != 1_000_000 || change.Until.After(time.Now().Add(13*aDay)) {
		t.Errorf("%d runs until %s", change.Appear, change.Until)
	}
	apply(t, pool, "one", map[string]cronstore.Spec{"excluded": spec("@daily")}, false)
	excluded := spec("@every 1s")
	excluded.Exclude = []string{"* * * * *"}
	change = foresee(t, pool, map[string]cronstore.Spec{"excluded": excluded}, 366*aDay)["excluded"]
	if change.Vanish < 10 || change.Until.After(time.Now().Add(13*aDay)) {
		t.Errorf("of a cron without runs: %d runs until %s", change.Vanish, change.Until)
	}
}

// The evaluated ticks of all crons are bounded. The crons that are left out are counted.
func TestPlannerBoundsEvaluatedTicksOfAllCrons(t *testing.T) {
	t.Parallel()
	planner, err := cronstore.New(pgtest.Pool(t)).Planner(t.Context(), map[string]cronstore.Spec{
		"a": spec("@hourly"), "b": spec("@hourly"), "c": spec("@hourly"), "d": spec("@hourly"),
	})
	if err != nil {
		t.Fatal(err)
	}
	planner.SetEvaluated(40)
	changes, err := planner.Runs(t.Context(), aDay, 0)
	if err != nil || len(changes) != 2 || changes[1].Appear != 24 || planner.Uncompared() != 2 {
		t.Errorf("%+v, %d uncompared, %v", changes, planner.Uncompared(), err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	planner.SetEvaluated(40)
	if _, err := planner.Runs(ended, aDay, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("without a caller: %v", err)
	}
}

// A plan compares the runs of a bounded number of crons, and counts the others.
func TestPlannerBoundsCrons(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	crons := map[string]cronstore.Spec{}
	for i := range 1003 {
		crons[fmt.Sprintf("cron-%04d", i)] = spec("@daily")
	}
	planner, err := cronstore.New(pool).Planner(t.Context(), crons)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := planner.Runs(t.Context(), aDay, 0)
	if err != nil || len(changes) != 1000 || changes[999].Cron != "cron-0999" || planner.Uncompared() != 3 {
		t.Errorf("%d crons, %d uncompared, %v", len(changes), planner.Uncompared(), err)
	}
}
