package jobstore

import (
	"testing"
	"time"
)

// What is said of the limits of a kind reads CountLimit waiting jobs of all queues together, and not
// of each.
func TestLimitsOfKindsReadFewJobs(t *testing.T) {
	t.Parallel()
	const queues, each = 20, 1500 // CountLimit is a third of all
	recorded := &recorder{}
	pool := recordedPool(t, recorded)
	mustExec(t, pool, `INSERT INTO river_job (args, kind, queue, metadata)
		SELECT '{}', 'k' || n % 5, 'q' || n % $1::int, CASE n % 10 WHEN 3 THEN '{"forge:weight": 2}' ELSE '{}' END::jsonb FROM generate_series(1, $1::int * $2::int) AS n`, queues, each)
	mustExec(t, pool, `ANALYZE river_job`)
	rate := Limit{Scope: ScopeJob, Name: "k3", Most: 5, Per: time.Minute}
	setLimits(t, pool, rate, Limit{Scope: ScopeQueue, Name: "q3", Most: 5})
	recorded.take()

	store, ctx := New(pool), t.Context()
	heavy, err := store.HeavyJobs(ctx, Places{Scope: ScopeJob, Name: "k3", Class: ClassRate}, queues*each)
	if err != nil || len(heavy) != CountLimit/10 {
		t.Errorf("%d jobs of several units, want %d: %v", len(heavy), CountLimit/10, err)
	}
	backlog, err := store.Backlog(ctx, Limit{Scope: ScopeJob, Name: "k3", Most: 5}, nil)
	if err != nil || backlog.Jobs != CountLimit/5-5 {
		t.Errorf("%d waiting jobs, want %d: %v", backlog.Jobs, CountLimit/5-5, err)
	}
	most := []float64{CountLimit + 100, CountLimit + 100, CountLimit + queues*each + 100} // it also counts the jobs of each queue
	usages, err := store.Usages(ctx)
	if err != nil || len(usages) != 2 {
		t.Fatalf("%d limits: %v", len(usages), err)
	}
	if q, k := usages[0], usages[1]; q.Available != each || q.MoreAvailable || k.Available != CountLimit/5 || !k.MoreAvailable {
		t.Errorf("available: %d (more: %t) of the queue, %d (more: %t) of the kind", q.Available, q.MoreAvailable, k.Available, k.MoreAvailable)
	}
	statements := recorded.take()
	if len(statements) != len(most) {
		t.Fatalf("%d statements were recorded, want %d", len(statements), len(most))
	}
	for i, s := range statements {
		plan := explainAnalyze(t, pool, s)
		if rows := plan.readRows(map[string]bool{}); rows > most[i] {
			t.Errorf("statement %d reads %.0f rows, want at most %.0f", i, rows, most[i])
		}
	}
}
