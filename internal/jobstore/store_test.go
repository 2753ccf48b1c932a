package jobstore_test

import (
	"errors"
	"strings"
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
		jobs, err := jobstore.List(t.Context(), pool, test.filter)
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
	counts, err := jobstore.CountsByQueueAndState(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	want := []jobstore.Count{
		{"default", "available", 1}, {"default", "completed", 2}, {"slow", "completed", 1}, {"slow", "discarded", 1},
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
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
	got, err := jobstore.Get(t.Context(), pool, 1)
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
	if _, err := jobstore.Get(t.Context(), pool, 2); !errors.Is(err, jobstore.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func TestLogsAreNumberedAcrossAppends(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	now := time.Now()
	appendLogs := func(attempt int, texts ...string) {
		t.Helper()
		var chunks []jobstore.LogChunk
		for _, text := range texts {
			chunks = append(chunks, jobstore.LogChunk{At: now, Stream: jobstore.StreamStdout, Chunk: text})
		}
		if err := jobstore.AppendLogs(t.Context(), pool, 1, attempt, chunks); err != nil {
			t.Fatal(err)
		}
	}
	read := func(attempt, after int) (text string, last int) {
		t.Helper()
		chunks, err := jobstore.Logs(t.Context(), pool, 1, attempt, after)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, chunk := range chunks {
			b.WriteString(chunk.Chunk)
			last = chunk.Seq
		}
		return b.String(), last
	}
	appendLogs(1, "a", "b")
	appendLogs(2, "other")
	appendLogs(1, "c")
	text, last := read(1, 0)
	if text != "abc" || last != 3 {
		t.Errorf("got %q up to %d", text, last)
	}
	if text, _ := read(1, 2); text != "c" {
		t.Errorf("after the second chunk: %q", text)
	}
	if text, _ := read(1, 3); text != "" {
		t.Errorf("after the last chunk: %q", text)
	}
}
