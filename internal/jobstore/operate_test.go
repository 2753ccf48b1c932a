package jobstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

var states = []string{"available", "cancelled", "completed", "discarded", "pending", "retryable", "running", "scheduled"}

// insertStates adds one job in each state, with ids from 1 in the order of states.
// All attempts of the jobs are used up.
func insertStates(t *testing.T, pool *pgxpool.Pool) (ids []int64) {
	t.Helper()
	for i, state := range states {
		exec(t, pool, `
			INSERT INTO river_job (args, kind, state, attempt, max_attempts, metadata, scheduled_at, finalized_at)
			VALUES ('{}', 'k', $1::text::river_job_state, 3, 3, '{"cancel_attempted_at": "x", "kept": 1}', now() + interval '1 day',
			        CASE WHEN $1 IN ('completed', 'cancelled', 'discarded') THEN now() END)`, state)
		ids = append(ids, int64(i+1))
	}
	return ids
}

func jobStates(t *testing.T, pool *pgxpool.Pool) map[string]string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT id, state::text FROM river_job ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for rows.Next() {
		var id int
		var state string
		if err := rows.Scan(&id, &state); err != nil {
			t.Fatal(err)
		}
		got[states[id-1]] = state
	}
	return got
}

func TestActByState(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		action  jobstore.Action
		want    map[string]string // from the state before to the state after
		refused map[string]string
	}{
		{
			jobstore.Cancel,
			map[string]string{
				"available": "cancelled", "cancelled": "cancelled", "completed": "completed", "discarded": "discarded",
				"pending": "cancelled", "retryable": "cancelled", "running": "running", "scheduled": "cancelled",
			},
			map[string]string{
				"cancelled": "it is cancelled already", "completed": "it is completed already", "discarded": "it is discarded already",
			},
		},
		{
			jobstore.Retry,
			map[string]string{
				"available": "available", "cancelled": "available", "completed": "available", "discarded": "available",
				"pending": "available", "retryable": "available", "running": "running", "scheduled": "available",
			},
			map[string]string{"available": "it is available already", "running": "it is running already"},
		},
		{
			jobstore.Discard,
			map[string]string{
				"available": "discarded", "cancelled": "cancelled", "completed": "completed", "discarded": "discarded",
				"pending": "discarded", "retryable": "discarded", "running": "running", "scheduled": "discarded",
			},
			map[string]string{
				"cancelled": "it is cancelled already", "completed": "it is completed already", "discarded": "it is discarded already",
				"running": "it is running; cancel it first",
			},
		},
	} {
		t.Run(string(test.action), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			ids := append(insertStates(t, pool), 99)
			changes, err := jobstore.New(pool).Act(t.Context(), jobstore.Order{Action: test.action, By: "ada"}, ids)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, jobStates(t, pool)); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			refused := map[string]string{}
			for i, change := range changes[:len(states)] {
				if change.ID != ids[i] || change.Was != states[i] || change.State != test.want[change.Was] {
					t.Errorf("change %+v", change)
				}
				if !change.Changed() {
					refused[change.Was] = change.Refused
				}
			}
			if diff := cmp.Diff(test.refused, refused); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
			if last := changes[len(states)]; !last.Missing || last.Changed() || last.ID != 99 {
				t.Errorf("the one that is not there: %+v", last)
			}
			checkRows(t, pool, test.action, len(states)-len(refused))
		})
	}
}

// checkRows checks the rows beyond their states: a finished job has its time, a job
// to be run again is due and has an attempt left, and the event log has the
// requester.
func checkRows(t *testing.T, pool *pgxpool.Pool, action jobstore.Action, changed int) {
	t.Helper()
	for what, sql := range map[string]string{
		"finalized unless finished, or the reverse": `SELECT count(*) FROM river_job WHERE (finalized_at IS NOT NULL) <> (state IN ('completed', 'cancelled', 'discarded'))`,
		"lost metadata":                    `SELECT count(*) FROM river_job WHERE NOT metadata ? 'kept'`,
		"retried without an attempt left":  `SELECT count(*) FROM river_job WHERE state = 'available' AND id <> 1 AND attempt >= max_attempts`,
		"retried and not due":              `SELECT count(*) FROM river_job WHERE state = 'available' AND id <> 1 AND scheduled_at > now()`,
		"retried, to be cancelled by then": `SELECT count(*) FROM river_job WHERE state = 'available' AND id <> 1 AND metadata ? 'cancel_attempted_at'`,
	} {
		var n int
		if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d %v", what, n, err)
		}
	}
	var kind, by string
	var jobs int
	err := pool.QueryRow(t.Context(), `SELECT type, data ->> 'by', (data ->> 'jobs')::int FROM forge_events`).Scan(&kind, &by, &jobs)
	want := map[jobstore.Action]string{jobstore.Cancel: "job_cancelled", jobstore.Retry: "job_retried", jobstore.Discard: "job_discarded"}[action]
	if err != nil || kind != want || by != "ada" || jobs != changed {
		t.Errorf("the event log has %s of %d jobs by %s, want %s of %d: %v", kind, jobs, by, want, changed, err)
	}
}

func TestCancelNotifiesNodeAndRetryNotifiesLeader(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ids := insertStates(t, pool)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `LISTEN "public.river_control"; LISTEN "public.river_insert"`); err != nil {
		t.Fatal(err)
	}
	for _, action := range []jobstore.Action{jobstore.Cancel, jobstore.Retry, jobstore.Discard} {
		if _, err := jobstore.New(pool).Act(t.Context(), jobstore.Order{Action: action}, ids); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, pool, `SELECT pg_notify('public.river_control', 'last')`)
	var heard []string
	for len(heard) == 0 || heard[len(heard)-1] != "last" {
		note, err := conn.Conn().WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, note.Payload)
	}
	want := []string{`{"action" : "cancel", "job_id" : 7, "queue" : "default"}`, `{"queue": "default"}`, "last"}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
}

func TestRetryKeepsKeysUnique(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	const insert = `
INSERT INTO river_job (args, kind, state, max_attempts, finalized_at, unique_key, unique_states)
VALUES ('{}', 'k', $1::text::river_job_state, 3, CASE WHEN $1 <> 'available' THEN now() END, $2::text::bytea, B'11110101')`
	for _, job := range [][2]string{{"discarded", "a"}, {"available", "a"}, {"discarded", "b"}, {"cancelled", "b"}, {"completed", "c"}} {
		exec(t, pool, insert, job[0], job[1])
	}
	changes, err := jobstore.New(pool).Act(t.Context(), jobstore.Order{Action: jobstore.Retry}, []int64{5, 4, 3, 1})
	if err != nil {
		t.Fatal(err)
	}
	got := map[int64]string{}
	for _, change := range changes {
		got[change.ID] = change.State + " " + change.Refused
	}
	want := map[int64]string{
		1: "discarded another job holds its unique key", 3: "available ",
		4: "cancelled job 3, which has the same unique key, is retried", 5: "available ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestActOnAll(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (args, kind, queue, state, max_attempts, metadata, finalized_at)
		SELECT '{}', CASE n % 2 WHEN 0 THEN 'even' ELSE 'odd' END, CASE WHEN n <= 600 THEN 'first' ELSE 'second' END,
		       CASE n % 3 WHEN 0 THEN 'completed' WHEN 1 THEN 'discarded' ELSE 'available' END::river_job_state, 3,
		       CASE WHEN n <= 30 THEN '{"forge:cron": "nightly"}' ELSE '{}' END::jsonb, CASE WHEN n % 3 < 2 THEN now() END
		FROM generate_series(1, 1800) AS n`)
	for _, test := range []struct {
		action jobstore.Action
		filter jobstore.Filter
		want   int64
		after  string
	}{
		{jobstore.Cancel, jobstore.Filter{Cron: "nightly"}, 10, `state = 'cancelled'`},
		{jobstore.Discard, jobstore.Filter{State: "completed"}, 0, `false`},
		{jobstore.Discard, jobstore.Filter{Queue: "first", Kind: "odd"}, 95, `state = 'discarded' AND id % 3 = 2`},
		{jobstore.Retry, jobstore.Filter{Queue: "second"}, 400, `state = 'available' AND id % 3 = 1`},
		{jobstore.Retry, jobstore.Filter{State: "completed"}, 600, `state = 'available' AND id % 3 = 0`},
	} {
		counted, err := jobstore.New(pool).CountMatching(t.Context(), test.action, test.filter, jobstore.Matching{})
		if err != nil || counted.Jobs != test.want {
			t.Fatalf("%s %+v: counted %d, want %d: %v", test.action, test.filter, counted.Jobs, test.want, err)
		}
		bounded := test.filter
		bounded.Limit = 7
		if some, err := jobstore.New(pool).CountMatching(t.Context(), test.action, bounded, jobstore.Matching{}); err != nil || some.Jobs != min(test.want, 7) {
			t.Errorf("%s %+v: counted %d: %v", test.action, bounded, some.Jobs, err)
		}
		// Jobs inserted after the count are not changed.
		exec(t, pool, insertSQL, "even", "second", "available", `{"forge:cron": "nightly"}`)
		exec(t, pool, insertSQL, "odd", "first", "completed", `{}`)
		seen := 0
		changed, err := jobstore.New(pool).ActOnAll(t.Context(), jobstore.Order{
			Action: test.action, By: "ada", Progress: func(done int) { seen = done },
		}, test.filter, counted)
		if err != nil || int64(changed) != test.want || seen != changed {
			t.Errorf("%s %+v: changed %d of %d, want %d: %v", test.action, test.filter, changed, seen, test.want, err)
		}
		var n int64
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job WHERE id <= 1800 AND (`+test.after+`)`).Scan(&n); err != nil || n != test.want {
			t.Errorf("%s %+v: %d rows, want %d: %v", test.action, test.filter, n, test.want, err)
		}
		exec(t, pool, `DELETE FROM river_job WHERE id > 1800`)
	}
	var entries, jobs int
	err := pool.QueryRow(t.Context(), `
		SELECT count(*), sum((data ->> 'jobs')::int) FROM forge_events WHERE data ? 'filter' AND data ->> 'by' = 'ada'
		AND jsonb_array_length(data -> 'ids') <= 20`).Scan(&entries, &jobs)
	if err != nil || entries != 5 || jobs != 10+95+400+600 {
		t.Errorf("%d entries of %d jobs in the event log: %v", entries, jobs, err)
	}
}

// Jobs that match only since the count before are not counted.
func TestCountMatchingAmongCounted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insert := func(state string) { exec(t, pool, insertSQL, "k", "default", state, `{}`) }
	insert("discarded")
	insert("available")
	store := jobstore.New(pool)
	all := jobstore.Filter{Kind: "k"}
	before, err := store.CountMatching(t.Context(), jobstore.Retry, all, jobstore.Matching{})
	if err != nil || before.Jobs != 1 || before.UpTo != 1 {
		t.Fatalf("counted %+v: %v", before, err)
	}
	before.UpTo = 2
	insert("discarded")
	exec(t, pool, `UPDATE river_job SET state = 'discarded', finalized_at = clock_timestamp() WHERE id = 2`)
	for _, test := range []struct {
		before jobstore.Matching
		want   int64
	}{{before, 1}, {jobstore.Matching{UpTo: 2}, 2}, {jobstore.Matching{}, 3}} {
		if again, err := store.CountMatching(t.Context(), jobstore.Retry, all, test.before); err != nil || again.Jobs != test.want {
			t.Errorf("among %+v: counted %d, want %d: %v", test.before, again.Jobs, test.want, err)
		}
	}
}

// A job that is claimed concurrently is not changed before the claim is committed.
func TestActWaitsForAClaim(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, insertSQL, "k", "default", "available", `{}`)
	claim, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claim.Exec(t.Context(), `UPDATE river_job SET state = 'running', attempt = 1 WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	discarded := make(chan []jobstore.Change, 1)
	go func() {
		defer close(discarded)
		changes, err := jobstore.New(pool).Act(t.Context(), jobstore.Order{Action: jobstore.Discard}, []int64{1})
		if err != nil {
			t.Error(err)
		}
		discarded <- changes
	}()
	deadline := time.Now().Add(time.Minute)
	for waiting := 0; waiting == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the claim")
		}
		if err := pool.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if err := claim.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if changes := <-discarded; len(changes) != 1 || changes[0].Refused != "it is running; cancel it first" {
		t.Errorf("got %+v", changes)
	}
}

// A retry by hand does not wait for a transaction that has inserted a job with the unique key and
// has not ended, and changes the other jobs.
func TestRetryDoesNotWaitForOpenTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for n := range 3 {
		exec(t, pool, `
			INSERT INTO river_job (kind, args, state, attempt, max_attempts, finalized_at, unique_key, unique_states)
			VALUES ('k', '{}', 'discarded', 3, 3, now(), CASE WHEN $1 < 2 THEN ('key-' || $1::int)::bytea END, B'11010101')`, n)
	}
	open, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(t.Context()) }()
	if _, err := open.Exec(t.Context(), `
		INSERT INTO river_job (kind, args, max_attempts, unique_key, unique_states) VALUES ('k', '{}', 3, 'key-0', B'11010101')`); err != nil {
		t.Fatal(err)
	}
	bounded, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	retry := jobstore.Order{Action: jobstore.Retry, By: "ada"}
	changes, err := jobstore.New(pool).Act(bounded, retry, []int64{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, state := range []string{"discarded", "available", "available"} {
		if busy := i == 0; changes[i].State != state || changes[i].Changed() == busy || busy && !strings.Contains(changes[i].Refused, "has not ended") {
			t.Errorf("job %d: %+v", i+1, changes[i])
		}
	}
	if changed, err := jobstore.New(pool).ActOnAll(bounded, retry, jobstore.Filter{}, jobstore.Matching{Jobs: 1, UpTo: 3}); err != nil || changed != 0 {
		t.Errorf("changed %d jobs, %v", changed, err)
	}
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if changes, err := jobstore.New(pool).Act(bounded, retry, []int64{1}); err != nil || changes[0].State != "available" {
		t.Errorf("%+v, %v", changes, err)
	}
}
