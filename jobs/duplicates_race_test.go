package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs"
)

// span is when an enqueue began and returned.
type span struct{ began, ended time.Time }

// enqueueAtOnce has sessions enqueue jobs of the kind with the arguments 1 to count, by turns
// with SQL, in Go, and with SQL in a transaction that is rolled back now and then. It returns
// when each committed enqueue took place.
func enqueueAtOnce(t *testing.T, pool *pgxpool.Pool, inserter *jobs.Inserter, kind string, sessions, count int) map[int]span {
	t.Helper()
	spans := make([]span, count+1)
	var next atomic.Int64
	var wait sync.WaitGroup
	for range sessions {
		wait.Go(func() {
			for {
				n := int(next.Add(1))
				if n > count {
					return
				}
				began := time.Now()
				committed, err := enqueueBy(t.Context(), pool, inserter, kind, n)
				if err != nil {
					t.Errorf("enqueue %d: %v", n, err)
				}
				if committed {
					spans[n] = span{began, time.Now()}
				}
			}
		})
	}
	wait.Wait()
	found := map[int]span{}
	for n, s := range spans {
		if !s.ended.IsZero() {
			found[n] = s
		}
	}
	return found
}

var errRollback = errors.New("rolled back")

func enqueueBy(ctx context.Context, pool *pgxpool.Pool, inserter *jobs.Inserter, kind string, n int) (committed bool, err error) {
	args := fmt.Sprintf(`{"n": %d}`, n)
	switch n % 3 {
	case 0:
		_, err = jobs.NewEnqueuer(pool, inserter).Enqueue(ctx, jobstore.NewJob{Kind: kind, Args: []byte(args)}, false, "test")
	case 1:
		_, err = sqlEnqueue(ctx, pool, kind, args, `{}`)
	default:
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := sqlEnqueue(ctx, tx, kind, args, `{}`); err != nil {
				return err
			}
			if n%2 == 0 {
				return errRollback
			}
			return nil
		})
	}
	if errors.Is(err, errRollback) {
		return false, nil
	}
	return err == nil, err
}

// startedJob is a job as it was claimed.
type startedJob struct{ n int }

// claimWaiting starts a waiting job, as a claim does, and ends it. It fails the test if there
// are two waiting jobs, or if an enqueue has changed the job since its start.
func claimWaiting(ctx context.Context, pool *pgxpool.Pool) (started *startedJob, err error) {
	waiting, err := pool.Query(ctx, `SELECT id FROM river_job WHERE state IN ('available', 'scheduled')`)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(waiting, pgx.RowTo[int64])
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	if len(ids) > 1 {
		return nil, fmt.Errorf("jobs %v wait", ids)
	}
	started = &startedJob{}
	err = pool.QueryRow(ctx, `UPDATE river_job SET state = 'running', attempt = attempt + 1, attempted_at = now(), attempted_by = '{x}'
		WHERE id = $1 AND state IN ('available', 'scheduled') RETURNING (args -> 'n')::int`, ids[0]).Scan(&started.n)
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Millisecond)
	var ended int
	err = pool.QueryRow(ctx, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = $1 RETURNING (args -> 'n')::int`, ids[0]).Scan(&ended)
	if err == nil && ended != started.n {
		err = fmt.Errorf("job %d began with %d and ended with %d", ids[0], started.n, ended)
	}
	return started, err
}

// However many sessions enqueue at once, while jobs start: no two jobs wait, a running job does
// not change, and the last arguments run.
func TestDuplicatesAtOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"replaced", "debounced"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pool, inserter := apply(t, duplicatesFile)
			done := make(chan []startedJob)
			ctx, stop := context.WithCancel(t.Context())
			go func() {
				var all []startedJob
				defer func() { done <- all }()
				for {
					one, err := claimWaiting(context.WithoutCancel(ctx), pool)
					switch {
					case err != nil:
						t.Error(err)
						return
					case one != nil:
						all = append(all, *one)
					case ctx.Err() != nil:
						return
					}
				}
			}()
			spans := enqueueAtOnce(t, pool, inserter, kind, 6, 300)
			stop()
			started := <-done
			if len(started) < 2 || len(started) == len(spans) {
				t.Fatalf("%d of %d jobs started: the test shows nothing", len(started), len(spans))
			}
			demandLast(t, started, spans)
		})
	}
}

// demandLast fails the test if an enqueue began after the last job's had ended.
func demandLast(t *testing.T, started []startedJob, spans map[int]span) {
	t.Helper()
	last, ok := spans[started[len(started)-1].n]
	if !ok {
		t.Fatalf("job %d started, which was rolled back", started[len(started)-1].n)
	}
	for n, s := range spans {
		if s.began.After(last.ended) {
			t.Errorf("the arguments of enqueue %d, after those of the last job, never ran", n)
		}
	}
	for _, job := range started {
		if _, ok := spans[job.n]; !ok {
			t.Errorf("job %d started, which was rolled back", job.n)
		}
	}
}

// Of the jobs that are enqueued at once, a throttled kind accepts one.
func TestThrottleAtOnce(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, duplicatesFile)
	enqueueAtOnce(t, pool, inserter, "throttled", 8, 200)
	if got := rows(t, pool, `SELECT concat_ws(' ', count(*), (SELECT count(*) FROM forge_throttles)) FROM river_job`); got[0] != "1 1" {
		t.Errorf("jobs and records: %q", got)
	}
}

// An enqueue that finds the waiting job locked, by another enqueue or by its claim, decides
// when that transaction has ended.
func TestDuplicatesWaitForTransactions(t *testing.T) {
	t.Parallel()
	const (
		claim  = `UPDATE river_job SET state = 'running', attempt = 1, attempted_by = '{x}'`
		second = `SELECT forge_enqueue('%s', '{"v": 2}')`
	)
	for _, test := range []struct{ name, kind, first, end, want, left string }{
		{"a claim", "replaced", claim, "COMMIT", "added", `running {"v": 1}, available {"v": 3}`},
		{"a claim that fails", "replaced", claim, "ROLLBACK", "replaced", `available {"v": 3}`},
		{"a claim", "debounced", claim, "COMMIT", "added", `running {"v": 1}, scheduled {"v": 3}`},
		{"an enqueue", "replaced", second, "COMMIT", "replaced", `available {"v": 3}`},
		{"an enqueue", "debounced", second, "ROLLBACK", "debounced", `scheduled {"v": 3}`},
		{"a first enqueue", "fresh", second, "COMMIT", "throttled", `available {"v": 2}`},
		{"a first enqueue that fails", "fresh", second, "ROLLBACK", "added", `available {"v": 3}`},
	} {
		t.Run(test.name+" of "+test.kind+" "+test.end, func(t *testing.T) {
			t.Parallel()
			pool, inserter := apply(t, duplicatesFile)
			kind := strings.Replace(test.kind, "fresh", "throttled", 1)
			if test.kind != "fresh" {
				enqueuers(inserter)["Go"](t, pool, kind, `{"v": 1}`, `{}`)
			}
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			if _, err := tx.Exec(t.Context(), strings.Replace(test.first, "%s", kind, 1)); err != nil {
				t.Fatal(err)
			}
			done := make(chan string, 1)
			go func() {
				added, err := jobs.NewEnqueuer(pool, inserter).Enqueue(t.Context(), jobstore.NewJob{Kind: kind, Args: []byte(`{"v": 3}`)}, false, "test")
				done <- fmt.Sprint(added.Verdict, err)
			}()
			waitForLock(t, pool)
			if _, err := tx.Exec(t.Context(), test.end); err != nil {
				t.Fatal(err)
			}
			if got := <-done; got != test.want+"<nil>" {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := strings.Join(rows(t, pool, `SELECT state || ' ' || args FROM river_job ORDER BY id`), ", "); got != test.left {
				t.Errorf("got %s, want %s", got, test.left)
			}
		})
	}
}

// waitForLock returns when a session of the database waits for another one.
func waitForLock(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if rows(t, pool, `SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)[0] != "0" {
			return
		}
	}
	t.Fatal("nobody waits for a lock")
}
