package jobstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

const insertSQL = `
INSERT INTO river_job (args, kind, queue, state, max_attempts, metadata, finalized_at)
VALUES ('{}', $1, $2, $3::text::river_job_state, 25, $4,
        CASE WHEN $3 IN ('completed', 'cancelled', 'discarded') THEN now() END)`

func TestList(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, job := range [][4]string{
		{"a", "default", "available", `{}`},
		{"a", "slow", "completed", `{"forge:cron": "nightly"}`},
		{"b", "default", "completed", `{"forge:cron": "hourly"}`},
		{"b", "slow", "discarded", `{}`},
		{"c", "default", "completed", `{"forge:cron": "nightly"}`},
	} {
		exec(t, pool, insertSQL, job[0], job[1], job[2], job[3])
	}
	for name, test := range map[string]struct {
		filter jobstore.Filter
		want   []int64
	}{
		"all":         {jobstore.Filter{}, []int64{5, 4, 3, 2, 1}},
		"first page":  {jobstore.Filter{Limit: 2}, []int64{5, 4}},
		"second page": {jobstore.Filter{Limit: 2, BeforeID: 4}, []int64{3, 2}},
		"state":       {jobstore.Filter{State: "completed"}, []int64{5, 3, 2}},
		"no state":    {jobstore.Filter{State: "finished"}, nil},
		"kind":        {jobstore.Filter{Kind: "b"}, []int64{4, 3}},
		"queue":       {jobstore.Filter{Queue: "slow"}, []int64{4, 2}},
		"cron":        {jobstore.Filter{Cron: "nightly"}, []int64{5, 2}},
		"several":     {jobstore.Filter{Cron: "nightly", Queue: "slow", State: "completed", Kind: "a"}, []int64{2}},
	} {
		jobs, err := jobstore.New(pool).List(t.Context(), test.filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, job := range jobs {
			got = append(got, job.ID)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	counts, err := jobstore.New(pool).CountsByQueueAndState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []jobstore.Count{
		{"default", "available", 1, false}, {"default", "completed", 2, false}, {"slow", "completed", 1, false}, {"slow", "discarded", 1, false},
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// A list has the requested part of the arguments, and ends early once it has enough
// bytes.
func TestListBoundsArgs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (args, kind, queue, state, max_attempts, errors)
		SELECT jsonb_build_object('text', repeat('x', 60000)), 'a', 'default', 'available', 25,
		       ARRAY[jsonb_build_object('error', repeat('e', 60000))]
		FROM generate_series(1, 20)`)
	for name, test := range map[string]struct {
		filter    jobstore.Filter
		jobs      int
		most      int // bytes of one job's arguments
		endsEarly bool
	}{
		"none":       {jobstore.Filter{}, 20, 0, false},
		"short":      {jobstore.Filter{Args: jobstore.ShortArgs}, 20, 512, false},
		"whole":      {jobstore.Filter{Args: jobstore.WholeArgs}, 20, 60_100, false},
		"ends early": {jobstore.Filter{Args: jobstore.WholeArgs, MaxArgs: 200_000}, 4, 60_100, true},
	} {
		jobs, err := jobstore.New(pool).List(t.Context(), test.filter)
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) != test.jobs || test.filter.EndsEarly(jobs) != test.endsEarly {
			t.Errorf("%s: %d jobs, want %d; ends early: %v", name, len(jobs), test.jobs, test.filter.EndsEarly(jobs))
		}
		for _, job := range jobs {
			if len(job.Args) > test.most || (len(job.Args) > 0) != (test.most > 0) || len(job.LastError) > 4096 {
				t.Fatalf("%s: %d bytes of arguments, an error of %d", name, len(job.Args), len(job.LastError))
			}
		}
	}
}

func TestGetJoinsFactsAndErrors(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (args, kind, state, attempt, max_attempts, attempted_at, attempted_by, errors, metadata)
		VALUES ('{"n": 1}', 'k', 'running', 3, 5, '2026-11-20T16:00:03Z',
			'{node-a-00000000000000aa,node-b-00000000000000bb}',
			ARRAY['{"attempt": 1, "at": "2026-11-20T16:00:01Z", "error": "exit status 2"}',
			      '{"attempt": 2, "at": "2026-11-20T16:00:02Z", "error": "node lost"}', '"odd"']::jsonb[],
			'{"forge:cron": "nightly", "forge:tick": "2026-11-20T16:00:00Z", "forge:attempt:1":
			  {"attempt": 1, "node_id": "node-a", "started_at": "2026-11-20T16:00:01Z", "duration_ms": 12.5,
			   "outcome": "failed", "exit_code": 2, "output_bytes": 9}, "forge:attempt:x": "odd"}')`)
	got, err := jobstore.New(pool).Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	got.CreatedAt, got.ScheduledAt = time.Time{}, time.Time{}
	second, exit := time.Date(2026, 11, 20, 16, 0, 0, 0, time.UTC), 2
	want := jobstore.Job{
		ID: 1, Kind: "k", State: "running", Queue: "default", Priority: 1, Attempt: 3, MaxAttempts: 5,
		Args: []byte(`{"n": 1}`), Cron: "nightly", Tick: second, NodeID: "node-b", AttemptedAt: second.Add(3 * time.Second),
		Attempts: []jobstore.Attempt{
			{
				Attempt: 1, NodeID: "node-a", StartedAt: second.Add(time.Second), DurationMS: 12.5,
				Outcome: "failed", ExitCode: &exit, Error: "exit status 2", OutputBytes: 9,
			},
			{Attempt: 2, StartedAt: second.Add(2 * time.Second), Outcome: "failed", Error: "node lost"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := jobstore.New(pool).Get(t.Context(), 2); !errors.Is(err, jobstore.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

// A plain success is not recorded: its row describes it, even after the job was
// retried. The record of an earlier run with its number is no longer shown.
func TestGetReturnsPlainSuccessAsAttempt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
INSERT INTO river_job (id, kind, args, max_attempts, state, attempt, attempted_at, attempted_by, finalized_at)
VALUES (1, 'k', '{}', 5, 'completed', 1, '2026-11-20 16:00Z', '{node-a-0123456789abcdef}', '2026-11-20 16:00:01.5Z'),
       (2, 'k', '{}', 5, 'completed', 0, NULL, NULL, '2026-11-20 16:00Z')`)
	// It was snoozed before, which did not use up the attempt.
	exec(t, pool, `UPDATE river_job SET metadata = '{"snoozes": 1, "forge:attempt:1": {"attempt": 1, "outcome": "snoozed", "node_id": "node-b"}}' WHERE id = 1`)
	want := []jobstore.Attempt{{
		Attempt: 1, NodeID: "node-a", StartedAt: time.Date(2026, 11, 20, 16, 0, 0, 0, time.UTC),
		DurationMS: 1500, Outcome: jobstore.OutcomeCompleted,
	}}
	for _, retry := range []bool{false, true} {
		if retry {
			if _, err := jobstore.New(pool).Act(t.Context(), jobstore.Order{Action: jobstore.Retry}, []int64{1, 2}); err != nil {
				t.Fatal(err)
			}
		}
		job, err := jobstore.New(pool).Get(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, job.Attempts); diff != "" || job.Snoozes != 1 {
			t.Errorf("tried again %v: snoozed %d times, (-want +got):\n%s", retry, job.Snoozes, diff)
		}
		if job, err := jobstore.New(pool).Get(t.Context(), 2); err != nil || len(job.Attempts) != 0 {
			t.Errorf("a job that never ran: %+v, %v", job.Attempts, err)
		}
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	appendLogs := func(rows ...jobstore.LogRow) {
		t.Helper()
		if err := jobstore.New(pool).AppendLogs(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	row := func(job int64, attempt, seq int, text string) jobstore.LogRow {
		return jobstore.LogRow{JobID: job, LogChunk: jobstore.LogChunk{
			Attempt: attempt, Seq: seq, At: time.Now(), Stream: jobstore.StreamStdout, Chunk: text,
		}}
	}
	read := func(attempt, after int) (text string) {
		t.Helper()
		chunks, err := jobstore.New(pool).Logs(t.Context(), 1, attempt, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, chunk := range chunks {
			text += chunk.Chunk
		}
		return text
	}
	appendLogs(row(1, 1, 1, "a"), row(2, 1, 1, "x"), row(1, 2, 1, "other"), row(1, 1, 2, "b"))
	appendLogs(row(1, 1, 2, "again"), row(1, 1, 3, "c")) // a statement whose response was lost
	for _, test := range []struct {
		attempt, after int
		want           string
	}{{1, 0, "abc"}, {1, 2, "c"}, {1, 3, ""}, {2, 0, "other"}, {3, 0, ""}} {
		if got := read(test.attempt, test.after); got != test.want {
			t.Errorf("attempt %d after chunk %d: got %q, want %q", test.attempt, test.after, got, test.want)
		}
	}
	last, err := jobstore.New(pool).LastSeqs(t.Context(), []jobstore.RunKey{{1, 1}, {1, 2}, {1, 3}, {2, 1}})
	if diff := cmp.Diff(map[jobstore.RunKey]int{{1, 1}: 3, {1, 2}: 1, {2, 1}: 1}, last); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// The output of a job is as durable as its outcome, and does not wait for the disk
// separately.
func TestAppendLogsDoesNotWaitForDisk(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := []jobstore.LogRow{{JobID: 1, LogChunk: jobstore.LogChunk{Attempt: 1, Seq: 1, At: time.Now(), Stream: "stdout", Chunk: "x"}}}
	if err := jobstore.New(tx).AppendLogs(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	var setting string
	if err := tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&setting); err != nil || setting != "off" {
		t.Errorf("synchronous_commit is %q: %v", setting, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}
