package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs"
)

const duplicatesFile = `
[database]
url = "postgres://localhost/unused"
[jobs.replaced]
kind = "go"
unique = { by_args = ["doc"], replace = true }
[jobs.debounced]
kind = "go"
unique = { by_args = ["doc"], debounce = "1m", max_wait = "10m" }
[jobs.throttled]
kind = "go"
unique = { by_args = ["doc"], throttle = "10m" }
[jobs.single]
kind = "go"
unique = { replace = true }
[jobs.plain]
kind = "go"
`

// enqueuing enqueues a job and returns its id and the verdict.
type enqueuing func(t *testing.T, db *pgxpool.Pool, kind, args, opts string) string

// enqueuers returns the ways to enqueue a job with the settings of its kind.
func enqueuers(inserter *jobs.Inserter) map[string]enqueuing {
	return map[string]enqueuing{
		"Go": func(t *testing.T, db *pgxpool.Pool, kind, args, opts string) string {
			t.Helper()
			job := jobOf(t, kind, args, opts)
			added := enqueue(t, db, inserter, job, job.Unique != "" || job.UniqueBy.Args || job.Duplicates.Set(), "test")
			return fmt.Sprintf("%d %s", added.ID, added.Verdict)
		},
		"SQL": func(t *testing.T, db *pgxpool.Pool, kind, args, opts string) string {
			t.Helper()
			got := rows(t, db, `SELECT id || ' ' || verdict FROM forge_enqueue_many(jsonb_build_array(
				jsonb_build_object('kind', $1::text, 'args', $2::text::jsonb) || $3::text::jsonb))`, kind, args, opts)
			return strings.Join(got, ", ")
		},
	}
}

// jobOf returns the job for the options of forge_enqueue.
func jobOf(t *testing.T, kind, args, opts string) jobstore.NewJob {
	t.Helper()
	job := jobstore.NewJob{Kind: kind, Args: []byte(args)}
	switch opts {
	case `{}`:
	case `{"priority": 2}`:
		job.Priority = 2
	case `{"at": "2099-01-01T00:00:00Z"}`:
		job.ScheduledAt = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	case `{"at": "2001-01-01T00:00:00Z"}`:
		job.ScheduledAt = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	case `{"unique": "k", "replace": true}`:
		job.Unique, job.Duplicates.Replace = "k", true
	case `{"unique_args": ["doc"], "throttle": "1h"}`:
		job.UniqueBy, job.Duplicates.Throttle = jobstore.UniqueBy{Args: true, ArgNames: []string{"doc"}}, config.Duration(time.Hour)
	case `{"unique_args": ["doc"], "replace": true}`:
		job.UniqueBy, job.Duplicates.Replace = jobstore.UniqueBy{Args: true, ArgNames: []string{"doc"}}, true
	default:
		t.Fatalf("no job for %s", opts)
	}
	return job
}

// jobText has what a duplicate can change of a job.
const jobText = `
SELECT concat_ws(' ', state, args, priority, CASE
    WHEN scheduled_at BETWEEN now() - interval '1 minute' AND now() THEN 'now'
    WHEN scheduled_at BETWEEN now() + interval '50 seconds' AND now() + interval '1 minute' THEN 'in a minute'
    ELSE to_char(scheduled_at AT TIME ZONE 'UTC', 'YYYY') END,
    'merged ' || (metadata #>> '{forge:unique,merged}'))
FROM river_job ORDER BY id`

func TestDuplicates(t *testing.T) {
	t.Parallel()
	type step struct{ kind, args, opts, want string }
	for name, test := range map[string]struct {
		steps []step
		jobs  []string
	}{
		"replace": {[]step{
			{"replaced", `{"doc": 1, "v": 1}`, `{}`, "# added"},
			{"replaced", `{"doc": 1, "v": 2}`, `{}`, "1 replaced"},
			{"replaced", `{"doc": 2, "v": 3}`, `{}`, "# added"},
			{"replaced", `{"doc": 1, "v": 4}`, `{}`, "1 replaced"},
			{"replaced", `{"v": 5}`, `{}`, "# added"},
			{"replaced", `{"v": 6}`, `{}`, "3 replaced"},
		}, []string{`available {"v": 4, "doc": 1} 1 now merged 2`, `available {"v": 3, "doc": 2} 1 now`, `available {"v": 6} 1 now merged 1`}},
		"replace what is given": {[]step{
			{"replaced", `{"v": 1}`, `{"at": "2099-01-01T00:00:00Z"}`, "# added"},
			{"replaced", `{"v": 2}`, `{"priority": 2}`, "1 replaced"},
			{"replaced", `{"v": 3}`, `{}`, "1 replaced"},
		}, []string{`scheduled {"v": 3} 2 2099 merged 2`}},
		"replace the time": {[]step{
			{"replaced", `{"v": 1}`, `{}`, "# added"},
			{"replaced", `{"v": 2}`, `{"at": "2099-01-01T00:00:00Z"}`, "1 replaced"},
		}, []string{`scheduled {"v": 2} 1 2099 merged 1`}},
		"one job of the kind": {[]step{
			{"single", `{"doc": 1}`, `{}`, "# added"},
			{"single", `{"doc": 2}`, `{}`, "1 replaced"},
		}, []string{`available {"doc": 2} 1 now merged 1`}},
		"debounce": {[]step{
			{"debounced", `{"doc": 1, "v": 1}`, `{}`, "# added"},
			{"debounced", `{"doc": 1, "v": 2}`, `{}`, "1 debounced"},
			{"debounced", `{"doc": 2, "v": 3}`, `{}`, "# added"},
		}, []string{`scheduled {"v": 2, "doc": 1} 1 in a minute merged 1`, `scheduled {"v": 3, "doc": 2} 1 in a minute`}},
		"throttle": {[]step{
			{"throttled", `{"doc": 1, "v": 1}`, `{}`, "# added"},
			{"throttled", `{"doc": 1, "v": 2}`, `{}`, "1 throttled"},
			{"throttled", `{"doc": 2, "v": 3}`, `{}`, "# added"},
			{"throttled", `{"doc": 2, "v": 3}`, `{"at": "2099-01-01T00:00:00Z"}`, "2 throttled"},
		}, []string{`available {"v": 1, "doc": 1} 1 now`, `available {"v": 3, "doc": 2} 1 now`}},
		"options": {[]step{
			{"plain", `{"doc": 1, "v": 1}`, `{}`, "# added"},
			{"plain", `{"doc": 1, "v": 2}`, `{"unique": "k", "replace": true}`, "# added"},
			{"plain", `{"doc": 2, "v": 3}`, `{"unique": "k", "replace": true}`, "2 replaced"},
			{"throttled", `{"doc": 2, "v": 4}`, `{"unique_args": ["doc"], "replace": true}`, "# added"},
			{"plain", `{"doc": 2, "v": 5}`, `{"unique_args": ["doc"], "throttle": "1h"}`, "# added"},
			{"plain", `{"doc": 2, "v": 6}`, `{"unique_args": ["doc"], "throttle": "1h"}`, "4 throttled"},
		}, []string{
			`available {"v": 1, "doc": 1} 1 now`, `available {"v": 3, "doc": 2} 1 now merged 1`,
			`available {"v": 4, "doc": 2} 1 now`, `available {"v": 5, "doc": 2} 1 now`,
		}},
	} {
		for by := range enqueuers(nil) {
			t.Run(name+" by "+by, func(t *testing.T) {
				t.Parallel()
				pool, inserter := apply(t, duplicatesFile)
				var ids []string
				for _, s := range test.steps {
					id, verdict, _ := strings.Cut(enqueuers(inserter)[by](t, pool, s.kind, s.args, s.opts), " ")
					if verdict == "added" {
						ids = append(ids, id)
						id = "#"
					} else {
						id = fmt.Sprint(slices.Index(ids, id) + 1)
					}
					if got := id + " " + verdict; got != s.want {
						t.Errorf("%+v: got %q", s, got)
					}
				}
				if got := rows(t, pool, jobText); !slices.Equal(got, test.jobs) {
					t.Errorf("got %q, want %q", got, test.jobs)
				}
			})
		}
	}
}

// A job that has started holds its key no more, whatever becomes of it.
func TestStartedJobReleasesItsKey(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"retryable", "available", "scheduled", "completed", "discarded", "cancelled"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			pool, inserter := apply(t, duplicatesFile)
			add := enqueuers(inserter)["Go"]
			add(t, pool, "replaced", `{"v": 1}`, `{}`)
			exec(t, pool, `UPDATE river_job SET state = 'running', attempt = 1, attempted_by = '{x}'`)
			if got := add(t, pool, "replaced", `{"v": 2}`, `{}`); got != "2 added" && !strings.HasSuffix(got, "added") {
				t.Errorf("while it runs: %s", got)
			}
			exec(t, pool, `UPDATE river_job SET state = $1::text::river_job_state, finalized_at = CASE WHEN $1 IN ('completed', 'discarded', 'cancelled') THEN now() END WHERE attempt = 1`, state)
			if got := add(t, pool, "replaced", `{"v": 3}`, `{}`); !strings.HasSuffix(got, "replaced") {
				t.Errorf("while the second waits: %s", got)
			}
			if state == "retryable" || state == "scheduled" {
				if _, err := jobstore.New(pool).ReleaseDue(t.Context(), time.Now().Add(time.Hour), 10); err != nil {
					t.Fatal(err)
				}
			}
			want := []string{`1 {"v": 1}`, `0 {"v": 3}`}
			if got := rows(t, pool, `SELECT attempt || ' ' || args FROM river_job WHERE state <> 'discarded' OR attempt = 1 ORDER BY id`); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A debounced job is due a minute after the last enqueue, at the latest ten minutes after the
// first one. Once it is due, its time does not change.
func TestDebounceEnds(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, duplicatesFile)
	for by, add := range enqueuers(inserter) {
		for _, test := range []struct{ since, state, due, want string }{
			{"5 minutes", "scheduled", "10 seconds", `scheduled 60`},
			{"570 seconds", "scheduled", "10 seconds", `scheduled 30`},
			{"11 minutes", "scheduled", "-5 seconds", `scheduled -60`},
			{"11 minutes", "available", "-5 seconds", `available -5`},
		} {
			add(t, pool, "debounced", `{"v": 1}`, `{}`)
			exec(t, pool, `UPDATE river_job SET created_at = now() - $1::text::interval, state = $2::text::river_job_state, scheduled_at = now() + $3::text::interval`, test.since, test.state, test.due)
			if got := add(t, pool, "debounced", `{"v": 2}`, `{}`); !strings.HasSuffix(got, "debounced") {
				t.Errorf("%s: %s", by, got)
			}
			got := rows(t, pool, `DELETE FROM river_job RETURNING concat_ws(' ', state, round(extract(epoch FROM scheduled_at - now())))`)
			if !slices.Equal(got, []string{test.want}) {
				t.Errorf("%s, %s since the first: got %q, want %q", by, test.since, got, test.want)
			}
		}
	}
}

// A throttled kind accepts a job again once the period is over, whatever became of the one
// before. Its record outlasts the job, and is deleted later.
func TestThrottleEnds(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, duplicatesFile)
	for by, add := range enqueuers(inserter) {
		first := add(t, pool, "throttled", `{}`, `{}`)
		exec(t, pool, `DELETE FROM river_job`)
		if got := add(t, pool, "throttled", `{}`, `{}`); got != strings.Replace(first, "added", "throttled", 1) {
			t.Errorf("%s: got %s after %s", by, got, first)
		}
		if deleted, err := jobstore.New(pool).PruneThrottles(t.Context(), time.Now(), 10); err != nil || deleted != 0 {
			t.Errorf("deleted %d, %v", deleted, err)
		}
		exec(t, pool, `UPDATE forge_throttles SET accepted_at = accepted_at - interval '10 minutes', until = until - interval '10 minutes'`)
		if got := add(t, pool, "throttled", `{}`, `{}`); !strings.HasSuffix(got, "added") {
			t.Errorf("%s: after the period: %s", by, got)
		}
		exec(t, pool, `UPDATE forge_throttles SET until = now() - interval '1 minute'`)
		if deleted, err := jobstore.New(pool).PruneThrottles(t.Context(), time.Now(), 10); err != nil || deleted != 1 {
			t.Errorf("deleted %d, %v", deleted, err)
		}
	}
	exec(t, pool, `DELETE FROM river_job`)
	job := jobstore.NewJob{Kind: "throttled"}
	first := enqueue(t, pool, inserter, job, false, "test")
	if again := enqueue(t, pool, inserter, job, false, "test"); again.AcceptsAt == nil || again.AcceptsAt.Sub(first.ScheduledAt).Round(time.Minute) != 10*time.Minute || again.State != "available" {
		t.Errorf("got %+v after %+v", again, first)
	}
}

// Jobs that hold the key by another rule, such as those from before the rule changed, do not
// keep it from the next job.
func TestDuplicatesOfAnotherRule(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"available", "scheduled", "running", "retryable", "completed"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			pool, inserter := apply(t, duplicatesFile)
			older := jobstore.NewJob{Kind: "replaced", Args: []byte(`{"doc": 1, "v": 1}`), UniqueBy: jobstore.UniqueBy{Args: true, ArgNames: []string{"doc"}}}
			enqueue(t, pool, inserter, older, true, "test")
			exec(t, pool, `UPDATE river_job SET state = $1::text::river_job_state, finalized_at = CASE WHEN $1 = 'completed' THEN now() END`, state)
			verdict, left := "replaced", []string{state + ` {"v": 2, "doc": 1}`}
			if !slices.Contains([]string{"available", "scheduled"}, state) {
				verdict, left = "added", []string{state + ` {"v": 1, "doc": 1}`, `available {"v": 2, "doc": 1}`}
			}
			if got := enqueuers(inserter)["SQL"](t, pool, "replaced", `{"doc": 1, "v": 2}`, `{}`); !strings.HasSuffix(got, verdict) {
				t.Errorf("got %s, want %s", got, verdict)
			}
			if got := rows(t, pool, `SELECT state || ' ' || args FROM river_job ORDER BY id`); !slices.Equal(got, left) {
				t.Errorf("got %q, want %q", got, left)
			}
			if again := enqueue(t, pool, inserter, older, true, "test"); again.Verdict != jobstore.Duplicate {
				t.Errorf("an enqueue by the first rule: %+v", again)
			}
		})
	}
}

func TestSQLDuplicatesRefuse(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, duplicatesFile)
	for opts, want := range map[string]string{
		`{"replace": true, "debounce": "5s"}`:       `opts: options that exclude each other; Want only one of replace, debounce and throttle.`,
		`{"throttle": "5s", "no_unique": true}`:     `opts: options that exclude each other; Want replace, debounce and throttle only with unique, or with unique_args and unique_queue.`,
		`{"throttle": "5s", "unique_period": "1m"}`: `opts: options that exclude each other; Want replace, debounce and throttle only with unique, or with unique_args and unique_queue.`,
		`{"max_wait": "5s"}`:                        `opts.max_wait: without debounce (got 5s); Want debounce too.`,
		`{"debounce": "0s"}`:                        `opts.debounce: no duration, or out of range (got 0s); Want 1s to 30d.`,
		`{"debounce": "31d"}`:                       `opts.debounce: no duration, or out of range (got 31d); Want 1s to 30d.`,
		`{"debounce": "soon"}`:                      `opts.debounce: no duration, or out of range (got soon); Want 1s to 30d.`,
		`{"debounce": "5s", "max_wait": "4s"}`:      `opts.max_wait: less than debounce (got 4s); Want at least 5s.`,
		`{"debounce": "5s", "max_wait": "367d"}`:    `opts.max_wait: no duration, or out of range (got 367d); Want 1s to 366d.`,
		`{"debounce": 5}`:                           `opts.debounce: wrong type (got number); Want string.`,
		`{"throttle": "999999999999999999d"}`:       `opts.throttle: no duration, or out of range (got 999999999999999999d); Want 1s to 366d.`,
		`{"debounce": "5s", "delay": "1m"}`:         `opts: a time for a debounced job (got 1m); Want neither at nor delay: debounce determines when the job is due.`,
		`{"unique": "a", "replace": "yes"}`:         `opts.replace: wrong type (got string); Want boolean.`,
	} {
		_, err := sqlEnqueue(t.Context(), pool, "plain", `{}`, opts)
		if got := refusal(err); got != want {
			t.Errorf("%s: got %s, want %s", opts, got, want)
		}
	}
	_, err := sqlEnqueue(t.Context(), pool, "debounced", `{}`, `{"at": "2099-01-01T00:00:00Z"}`)
	if want := `opts: a time for a debounced job (got 2099-01-01T00:00:00Z); Want neither at nor delay: debounce determines when the job is due.`; refusal(err) != want {
		t.Errorf("got %v", err)
	}
	_, err = jobs.NewEnqueuer(pool, inserter).Enqueue(t.Context(), jobstore.NewJob{Kind: "debounced", ScheduledAt: time.Now()}, false, "test")
	if want := `at: a time for a debounced job; want none: debounce determines when the job is due`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if left := rows(t, pool, `SELECT id::text FROM river_job`); len(left) > 0 {
		t.Errorf("inserted %v", left)
	}
}

// A rolled-back duplicate changes nothing.
func TestDuplicatesRollBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"replaced", "debounced", "throttled"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pool, inserter := apply(t, duplicatesFile)
			const everything = `SELECT concat_ws(' ', j.args, j.scheduled_at, j.metadata, t.accepted_at) FROM river_job j LEFT JOIN forge_throttles t ON t.job_id = j.id`
			inTx := func(want string) {
				t.Helper()
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(t.Context()) }()
				var verdict string
				if err := tx.QueryRow(t.Context(), `SELECT verdict FROM forge_enqueue_many(jsonb_build_array(jsonb_build_object('kind', $1::text, 'args', '{"v": 2}'::jsonb)))`, kind).Scan(&verdict); err != nil || verdict != want {
					t.Errorf("got %s, %v; want %s", verdict, err, want)
				}
			}
			inTx("added")
			if left := rows(t, pool, everything); len(left) > 0 {
				t.Errorf("after the first: %q", left)
			}
			enqueuers(inserter)["Go"](t, pool, kind, `{"v": 1}`, `{}`)
			before := rows(t, pool, everything)
			inTx(kind)
			if after := rows(t, pool, everything); !slices.Equal(before, after) {
				t.Errorf("got %q, want %q", after, before)
			}
		})
	}
}

// A batch keeps the order of its jobs, whether or not they have a rule.
func TestInsertManyWithDuplicates(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, "")
	replace := config.Duplicates{Replace: true}
	batch := []jobstore.NewJob{
		{Kind: "a", Unique: "k", Duplicates: replace, Args: []byte(`{"v": 1}`)},
		{Kind: "b"},
		{Kind: "a", Unique: "k", Duplicates: replace, Args: []byte(`{"v": 2}`)},
		{Kind: "c", Unique: "k", Duplicates: config.Duplicates{Throttle: config.Duration(time.Minute)}},
	}
	var ids []int64
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		ids, err = inserter.InsertMany(t.Context(), tx, batch)
		return err
	})
	if err != nil || len(ids) != 4 || ids[0] != ids[2] {
		t.Fatalf("got %v, %v", ids, err)
	}
	want := []string{`a {"v": 2}`, `b {}`, `c {}`}
	if got := rows(t, pool, `SELECT kind || ' ' || args FROM river_job ORDER BY array_position($1, id)`, ids); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
