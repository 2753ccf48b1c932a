package jobstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func set(t *testing.T, pool *pgxpool.Pool, limits ...jobstore.Limit) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return jobstore.New(tx).SetLimits(t.Context(), limits) })
	if err != nil {
		t.Fatal(err)
	}
}

const jobsSQL = `
INSERT INTO river_job (kind, queue, args, state, scheduled_at, attempted_by, finalized_at) VALUES
    ('k', 'a', '{}', 'running', now(), '{x}', NULL), ('k', 'a', '{}', 'available', now() - interval '1 minute', NULL, NULL),
    ('k', 'a', '{}', 'available', now(), NULL, NULL), ('r', 'b', '{}', 'running', now(), '{x}', NULL),
    ('r', 'a', '{}', 'retryable', now() + interval '1 hour', NULL, NULL), ('r', 'b', '{}', 'scheduled', now() + interval '1 hour', NULL, NULL),
    ('r', 'old', '{}', 'completed', now(), '{x}', now())`

func TestSetLimitsReplacesAllLimits(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	set(t, pool, jobstore.Limit{Scope: "queue", Name: "a", Most: 3}, jobstore.Limit{Scope: "job", Name: "a", Most: 1})
	set(t, pool, jobstore.Limit{Scope: "queue", Name: "a", Most: 5}, jobstore.Limit{Scope: "job", Name: "r", Most: 2})
	want := []jobstore.Limit{{Scope: "job", Name: "r", Most: 2}, {Scope: "queue", Name: "a", Most: 5}}
	got, err := jobstore.New(pool).Limits(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("limits (-want +got), %v:\n%s", err, diff)
	}
	exec(t, pool, jobsSQL)
	usages, err := jobstore.New(pool).Usages(t.Context())
	if diff := cmp.Diff([]jobstore.Usage{{Limit: want[1], Running: 1, Available: 2}, {Limit: want[0], Running: 1}}, usages); diff != "" || err != nil {
		t.Errorf("usages (-want +got), %v:\n%s", err, diff)
	}
	places, err := jobstore.New(pool).PlacesTaken(t.Context(), []jobstore.Places{
		{Scope: "queue", Name: "a", Class: "all"}, {Scope: "job", Name: "r", Class: "all"},
	})
	held := map[string]int{}
	for _, p := range places {
		held[p.Scope+"/"+p.Name] = p.Jobs
	}
	if diff := cmp.Diff(map[string]int{"queue/a": 1, "job/r": 1}, held); diff != "" || err != nil {
		t.Errorf("places (-want +got), %v:\n%s", err, diff)
	}
	set(t, pool)
	if got, err := jobstore.New(pool).Limits(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("limits %v, %v", got, err)
	}
}

func TestListReturnsEveryQueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, jobsSQL)
	exec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation, queues, slots) VALUES
		('n', '00000000000000aa', '{"a": 50, "idle": 2}', 10), ('m', '00000000000000bb', '{"a": 4}', 10)`)
	exec(t, pool, `INSERT INTO river_queue (name, paused_at, updated_at) VALUES ('past', now(), now())`)
	set(t, pool, jobstore.Limit{Scope: "queue", Name: "a", Most: 3}, jobstore.Limit{Scope: "job", Name: "a", Most: 9})
	queues, err := jobstore.New(pool).Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range queues {
		q := &queues[i]
		if paused := !q.PausedAt.IsZero(); paused != (q.Name == "past") {
			t.Errorf("%s is paused: %v", q.Name, paused)
		}
		if (q.Name == "a") != (q.Wait() > 50*time.Second && q.Now.Sub(q.OldestAt) == q.Wait()) {
			t.Errorf("%s: the oldest waits %v, since %v", q.Name, q.Wait(), q.OldestAt)
		}
		q.PausedAt, q.OldestAt, q.Now, q.WaitSeconds = time.Time{}, time.Time{}, time.Time{}, 0
	}
	if diff := cmp.Diff([]jobstore.Queue{
		{Name: "a", Available: 2, Running: 1, Retryable: 1, GlobalLimit: 3, Nodes: 2, Workers: 14},
		{Name: "b", Running: 1, Scheduled: 1},
		{Name: "idle", Nodes: 1, Workers: 2},
		{Name: "past"},
	}, queues); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation, queues) VALUES ('n', '00000000000000aa', '{"new": 2}')`)
	control, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer control.Release()
	if _, err := control.Exec(t.Context(), `LISTEN "public.river_control"`); err != nil {
		t.Fatal(err)
	}
	by := jobstore.QueuePauseOrder{By: "test"}
	since, changed, err := jobstore.New(pool).PauseQueue(t.Context(), "new", by)
	if err != nil || !changed || since.PausedAt.IsZero() {
		t.Fatalf("pause: %v, %v, %v", since, changed, err)
	}
	again, changed, err := jobstore.New(pool).PauseQueue(t.Context(), "new", by)
	if err != nil || changed || again != since {
		t.Errorf("pause again: %v, %v, %v; want %v", again, changed, err, since)
	}
	if since, changed, err = jobstore.New(pool).ResumeQueue(t.Context(), "new", by); err != nil || !changed || since != (jobstore.QueuePause{}) {
		t.Errorf("resume: %v, %v, %v", since, changed, err)
	}
	if _, changed, err = jobstore.New(pool).ResumeQueue(t.Context(), "new", by); err != nil || changed {
		t.Errorf("resume again: %v, %v", changed, err)
	}
	if _, _, err = jobstore.New(pool).PauseQueue(t.Context(), "nobody", by); !errors.Is(err, jobstore.ErrNoQueue) {
		t.Errorf("an unknown queue: %v", err)
	}
	for _, action := range []string{"pause", "resume"} { // the event log has no further entries
		note, err := control.Conn().WaitForNotification(t.Context())
		if want := `{"action" : "` + action + `", "queue" : "new"}`; err != nil || note.Payload != want {
			t.Errorf("told %v, %v; want %s", note, err, want)
		}
	}
	events, err := eventstore.New(pool).Find(t.Context(), eventstore.Filter{Limit: 10})
	if err != nil || len(events) != 2 || events[0].Type != eventstore.QueueResumed || string(events[1].Data) != `{"by": "test", "queue": "new"}` {
		t.Errorf("events %+v, %v", events, err)
	}
}

// rowsRead counts the job rows and index entries that the session has read.
func rowsRead(t *testing.T, tx pgx.Tx) (read int64) {
	t.Helper()
	err := tx.QueryRow(t.Context(), `
		SELECT pg_stat_get_xact_tuples_returned('river_job'::regclass) + sum(pg_stat_get_xact_tuples_returned(indexrelid))
		FROM pg_index WHERE indrelid = 'river_job'::regclass`).Scan(&read)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// Waiting finds the same oldest jobs as List, and reads few rows even if there are
// many jobs.
func TestWaitingReadsOnlyOldestJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, sql := range []string{
		`INSERT INTO river_queue (name, paused_at, updated_at) VALUES ('paused', now() - interval '3 days', now()), ('idle', NULL, now())`,
		`INSERT INTO river_job (kind, args, max_attempts, queue, priority, state, scheduled_at, finalized_at)
			SELECT 'k', '{}', 1, CASE WHEN i % 4 = 0 THEN 'paused' ELSE 'q' || i % 3 END, 1 + i % 4, s::river_job_state,
			       now() - make_interval(secs => i), CASE s WHEN 'completed' THEN now() END
			FROM generate_series(1, 40000) AS i, LATERAL (SELECT CASE WHEN i % 2 = 0 THEN 'available' ELSE 'completed' END AS s) AS states`,
		`INSERT INTO river_job (kind, args, max_attempts, queue, state, scheduled_at) VALUES ('k', '{}', 1, 'later', 'scheduled', now() + interval '1 h')`,
		`VACUUM ANALYZE river_job`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	all, err := jobstore.New(pool).Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]jobstore.Queue{}
	for _, q := range all {
		if q.Name != "later" { // nothing waits in it
			want[q.Name] = jobstore.Queue{Name: q.Name, QueuePause: q.QueuePause, OldestAt: q.OldestAt}
		}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	before := rowsRead(t, tx)
	waiting, err := jobstore.New(tx).WaitingQueues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]jobstore.Queue{}
	for _, q := range waiting {
		if q.OldestAt.IsZero() != (q.WaitSeconds == 0) {
			t.Errorf("the wait of %+v", q)
		}
		got[q.Name] = jobstore.Queue{Name: q.Name, QueuePause: q.QueuePause, OldestAt: q.OldestAt}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("oldest jobs (-by List +by Waiting):\n%s", diff)
	}
	if read := rowsRead(t, tx) - before; read > 100 {
		t.Errorf("%d rows and entries of indexes were read", read)
	}
}
