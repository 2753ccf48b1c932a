package jobstore_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Counts stop at the limit and say so. Neither many jobs of one queue nor of one state hide the
// others. Running jobs are neither available nor do they use up the limit.
func TestCountsStopAtLimit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	const most = jobstore.CountLimit
	exec(t, pool, `
		INSERT INTO river_job (kind, queue, args, state, finalized_at)
		SELECT 'k', q, '{}', s::river_job_state, CASE WHEN s IN ('completed', 'discarded') THEN now() END
		FROM (VALUES ('a', 'available', $1 + 3), ('b', 'available', $1), ('c', 'available', 1), ('a', 'running', 5), ('b', 'running', 2),
			('a', 'scheduled', $1 + 1), ('b', 'scheduled', $1), ('z', 'retryable', 7), ('y', 'pending', 1),
			('a', 'completed', $1 + 1), ('a', 'discarded', 4)) AS j (q, s, n), generate_series(1, n)`, most)
	set(t, pool, jobstore.Limit{Scope: "queue", Name: "a", Most: 3}, jobstore.Limit{Scope: "queue", Name: "b", Most: 3})
	counts, err := jobstore.New(pool).CountsByQueueAndState(t.Context())
	if diff := cmp.Diff([]jobstore.Count{
		{"a", "available", most, true},
		{"a", "completed", most, true},
		{"a", "discarded", 4, false},
		{"a", "running", 5, false},
		{"a", "scheduled", most, true},
		{"b", "available", most, false},
		{"b", "running", 2, false},
		{"b", "scheduled", most, false},
		{"c", "available", 1, false},
		{"y", "pending", 1, false},
		{"z", "retryable", 7, false},
	}, counts); diff != "" || err != nil {
		t.Errorf("counts (-want +got), %v:\n%s", err, diff)
	}
	queues, err := jobstore.New(pool).Queues(t.Context())
	got := map[string][3]int64{}
	more := map[string][3]bool{}
	for _, q := range queues {
		got[q.Name] = [3]int64{q.Available, q.Running, q.Scheduled + q.Retryable}
		more[q.Name] = [3]bool{q.MoreAvailable, q.MoreScheduled, q.MoreRetryable}
	}
	if diff := cmp.Diff(map[string][3]int64{"a": {most, 5, most}, "b": {most, 2, most}, "c": {1, 0, 0}, "y": {}, "z": {0, 0, 7}}, got); diff != "" || err != nil {
		t.Errorf("queues (-want +got), %v:\n%s", err, diff)
	}
	if diff := cmp.Diff(map[string][3]bool{"a": {true, true, false}, "b": {}, "c": {}, "y": {}, "z": {}}, more); diff != "" {
		t.Errorf("queues with more jobs (-want +got):\n%s", diff)
	}
	usages, err := jobstore.New(pool).Usages(t.Context())
	for i := range usages {
		usages[i].Limit = jobstore.Limit{Name: usages[i].Name}
	}
	if diff := cmp.Diff([]jobstore.Usage{
		{Limit: jobstore.Limit{Name: "a"}, Running: 5, Available: most, MoreAvailable: true},
		{Limit: jobstore.Limit{Name: "b"}, Running: 2, Available: most},
	}, usages); diff != "" || err != nil {
		t.Errorf("usages (-want +got), %v:\n%s", err, diff)
	}
}

// Each page of an open count has few jobs, and all pages together have every job once, however
// large the pages are.
func TestOpenCountCountsEveryJobOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (kind, queue, args, state, priority, scheduled_at, finalized_at)
		SELECT 'k', q, '{}', s::river_job_state, 1 + i % 4, CASE WHEN i = 1 THEN 'infinity' ELSE now() - (i % 3) * interval '1 s' END, CASE WHEN s = 'completed' THEN now() END
		FROM (VALUES ('a', 'available', 25), ('b', 'available', 10), ('b', 'running', 2), ('c', 'running', 3), ('a', 'pending', 3),
			('a', 'scheduled', 20), ('b', 'scheduled', 11), ('b', 'retryable', 9), ('a', 'completed', 50)) AS j (q, s, n), generate_series(1, n) AS i`)
	exec(t, pool, `INSERT INTO river_queue (name, updated_at) VALUES ('idle', now())`)
	want := map[string]map[string]int64{
		"a":    {"available": 25, "pending": 3, "retryable": 0, "running": 0, "scheduled": 20},
		"b":    {"available": 10, "pending": 0, "retryable": 9, "running": 2, "scheduled": 11},
		"c":    {"available": 0, "pending": 0, "retryable": 0, "running": 3, "scheduled": 0},
		"idle": {"available": 0, "pending": 0, "retryable": 0, "running": 0, "scheduled": 0},
	}
	var count jobstore.OpenCount
	for _, limit := range []int{1, 2, 7, 20, 40, 1000} {
		for pages := 1; ; pages++ {
			counted, all, err := count.Next(t.Context(), pool, limit)
			if err != nil || counted > limit || pages > 200 {
				t.Fatalf("%d jobs of at most %d in page %d: %v", counted, limit, pages, err)
			}
			if all == nil {
				continue
			}
			got := map[string]map[string]int64{}
			for _, c := range all {
				if got[c.Queue] == nil {
					got[c.Queue] = map[string]int64{}
				}
				got[c.Queue][c.State] = c.Jobs
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
			}
			break
		}
	}
}
