package migrations_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/migrations"
)

type uniqueArgs struct {
	N int `json:"n"`
}

func (uniqueArgs) Kind() string { return "unique" }

// uniqueJobs runs steps with River's own client and writes down what each has done.
type uniqueJobs struct {
	t      *testing.T
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	script strings.Builder
}

func newUniqueJobs(t *testing.T, pool *pgxpool.Pool) *uniqueJobs {
	t.Helper()
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{SkipUnknownJobCheck: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &uniqueJobs{t: t, pool: pool, client: client}
}

func (u *uniqueJobs) note(step string, job *rivertype.JobRow, skipped bool, err error) {
	u.t.Helper()
	switch {
	case err != nil && strings.Contains(err.Error(), "river_job_unique_idx"):
		fmt.Fprintf(&u.script, "%s: another job has the key\n", step)
	case err != nil:
		u.t.Fatalf("%s: %v", step, err)
	default:
		fmt.Fprintf(&u.script, "%s: job %d %s skipped=%v key=%v\n", step, job.ID, job.State, skipped, len(job.UniqueKey) > 0)
	}
}

func (u *uniqueJobs) insert(n int, opts river.UniqueOpts, at time.Time) int64 {
	u.t.Helper()
	result, err := u.client.Insert(u.t.Context(), uniqueArgs{n}, &river.InsertOpts{UniqueOpts: opts, ScheduledAt: at})
	if err != nil {
		u.t.Fatal(err)
	}
	u.note("insert", result.Job, result.UniqueSkippedAsDuplicate, nil)
	return result.Job.ID
}

func (u *uniqueJobs) insertMany(opts river.UniqueOpts, numbers ...int) {
	u.t.Helper()
	var params []river.InsertManyParams
	for _, n := range numbers {
		params = append(params, river.InsertManyParams{Args: uniqueArgs{n}, InsertOpts: &river.InsertOpts{UniqueOpts: opts}})
	}
	results, err := u.client.InsertMany(u.t.Context(), params)
	if err != nil {
		u.t.Fatal(err)
	}
	for _, result := range results {
		u.note("insert many", result.Job, result.UniqueSkippedAsDuplicate, nil)
	}
	if _, err := u.client.InsertManyFast(u.t.Context(), params[:1]); err != nil {
		u.note("insert many fast", nil, false, err)
	}
}

func (u *uniqueJobs) cancel(id int64) {
	u.t.Helper()
	job, err := u.client.JobCancel(u.t.Context(), id)
	u.note("cancel", job, false, err)
}

func (u *uniqueJobs) retry(id int64) {
	u.t.Helper()
	job, err := u.client.JobRetry(u.t.Context(), id)
	u.note("retry", job, false, err)
}

// set changes the state as River's executor and scheduler do.
func (u *uniqueJobs) set(id int64, state rivertype.JobState) {
	u.t.Helper()
	_, err := u.pool.Exec(u.t.Context(), `
		UPDATE river_job
		SET state = $2::text::river_job_state, metadata = metadata || '{"a": 1}',
		    finalized_at = CASE WHEN $2 IN ('completed', 'cancelled', 'discarded') THEN now() END
		WHERE id = $1`, id, string(state))
	if err != nil {
		u.note("set "+string(state), nil, false, err)
		return
	}
	job, err := u.client.JobGet(u.t.Context(), id)
	u.note("set "+string(state), job, false, err)
}

func (u *uniqueJobs) run() string {
	always := []rivertype.JobState{rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateScheduled}
	byArgs, byPeriod := river.UniqueOpts{ByArgs: true}, river.UniqueOpts{ByArgs: true, ByPeriod: 1000 * time.Hour}
	byState := river.UniqueOpts{ByArgs: true, ByState: always}
	for i, opts := range []river.UniqueOpts{byArgs, byPeriod, byState} {
		n := 10 * (i + 1)
		first := u.insert(n, opts, time.Time{})
		u.insert(n, opts, time.Time{})
		u.insert(n+1, opts, time.Now().Add(time.Hour))
		u.insertMany(opts, n, n+2)
		for _, state := range []rivertype.JobState{
			rivertype.JobStateRunning, rivertype.JobStateRetryable, rivertype.JobStateScheduled, rivertype.JobStateAvailable,
			rivertype.JobStateRunning, rivertype.JobStateCompleted,
		} {
			u.set(first, state)
			u.insert(n, opts, time.Time{})
		}
		u.retry(first)
		u.cancel(first)
		second := u.insert(n, opts, time.Time{})
		u.retry(first)
		u.set(first, rivertype.JobStateDiscarded)
		u.set(first, rivertype.JobStateAvailable)
		u.cancel(second)
		u.retry(first)
		u.retry(second)
		u.insert(n, opts, time.Time{})
	}
	return u.script.String()
}

// Unique jobs behave as with River's own schema, whichever state they reach.
func TestUniqueJobsBehaveAsInRiver(t *testing.T) {
	t.Parallel()
	plain := pgtest.Connect(t, pgtest.EmptyURL(t))
	migrator, err := rivermigrate.New(riverpgxv5.New(plain), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	want := newUniqueJobs(t, plain).run()
	if got := newUniqueJobs(t, pgtest.Pool(t)).run(); got != want {
		t.Errorf("(-River +forge):\n%s", cmp.Diff(want, got))
	}
	for _, outcome := range []string{"skipped=true", "skipped=false", "another job has the key"} {
		if !strings.Contains(want, outcome) {
			t.Errorf("no step has the outcome %q:\n%s", outcome, want)
		}
	}
}

// A retryable job whose key another job has taken meanwhile is discarded when it is due, as
// River does it, and no other job waits for that.
func TestDueJobWithTakenKeyIsDiscarded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	u := newUniqueJobs(t, pool)
	opts := river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}
	var ids [3]int64
	for i := range ids {
		ids[i] = u.insert(i, opts, time.Time{})
		u.set(ids[i], rivertype.JobStateRetryable)
	}
	rival := u.insert(1, opts, time.Time{})
	if rival == ids[1] {
		t.Fatal("a retryable job still has its key")
	}
	if released, err := jobstore.New(pool).ReleaseDue(context.WithoutCancel(t.Context()), time.Now().Add(time.Hour), 10); err != nil || released != 3 {
		t.Fatalf("released %d: %v", released, err)
	}
	for i, want := range []rivertype.JobState{rivertype.JobStateAvailable, rivertype.JobStateDiscarded, rivertype.JobStateAvailable} {
		if job, err := u.client.JobGet(t.Context(), ids[i]); err != nil || job.State != want {
			t.Errorf("job %d is %s, want %s: %v", i, job.State, want, err)
		}
	}
}

const uniqueRowsSQL = `
SELECT string_agg(format('%s %s %s %s', id, state, coalesce(unique_states::text, '-'), metadata), E'\n' ORDER BY id)
FROM river_job`

// Unique states, running jobs and counts are the same after the way down and up.
func TestHotClaimsKeepJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := newMigrator(pool)
	text := func(sql string) (found string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), sql).Scan(&found); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return found
	}
	downBelow(t, m, 64)
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO river_job (kind, args, state, attempted_by, finalized_at, unique_key, unique_states, metadata)
		SELECT 'k', '{}', s::river_job_state, CASE WHEN s = 'running' THEN '{a,b}'::text[] END,
		       CASE WHEN s IN ('completed', 'discarded', 'cancelled') THEN now() END,
		       CASE WHEN s IN ('available', 'discarded', 'cancelled') THEN 'x' ELSE s END::bytea, B'11110101', '{"a": 1}'
		FROM unnest('{available,discarded,cancelled,completed,running,scheduled,retryable}'::text[]) AS s`); err != nil {
		t.Fatal(err)
	}
	before := text(uniqueRowsSQL)
	mustUp(t, m)
	const parked = `{"a": 1, "forge:unique_states": "11110101"}`
	want := strings.NewReplacer(
		`2 discarded 11110101 {"a": 1}`, `2 discarded - `+parked, `3 cancelled 11110101 {"a": 1}`, `3 cancelled - `+parked).Replace(before)
	if diff := cmp.Diff(want, text(uniqueRowsSQL)); diff != "" {
		t.Errorf("after the way up (-want +got):\n%s", diff)
	}
	if claims := text(`SELECT string_agg(client_id || ids::text, ',') FROM forge_claims`); claims != "b{5}" {
		t.Errorf("noted claims: %s", claims)
	}
	downBelow(t, m, 64)
	if diff := cmp.Diff(before, text(uniqueRowsSQL)); diff != "" {
		t.Errorf("after the way down (-want +got):\n%s", diff)
	}
	mustUp(t, m)
}

// downBelow takes back the migrations from a version on.
func downBelow(t *testing.T, m *migrations.Migrator, version int64) {
	t.Helper()
	for {
		newest, _, err := m.Newest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if newest.Version < version {
			return
		}
		if err := m.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
