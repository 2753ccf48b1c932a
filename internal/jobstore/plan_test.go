package jobstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// manyJobs jobs are almost all of one queue and finished.
const manyJobs = 40_000

// Lists and counts with few results read few jobs, even if the same statement has
// often been used for many.
func TestSelectiveListsReadFewRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (args, kind, queue, state, max_attempts, finalized_at)
		SELECT '{}', 'k' || i % 5, CASE WHEN i IN (7, 8) THEN 'rare' ELSE 'default' END, s::river_job_state, 1, CASE WHEN s <> 'available' THEN now() END
		FROM (SELECT i, CASE WHEN i % 1000 = 0 THEN 'available' WHEN i % 1000 = 1 THEN 'discarded' ELSE 'completed' END AS s
		      FROM generate_series(1, `+fmt.Sprint(manyJobs)+`) AS i) AS j`)
	exec(t, pool, `VACUUM ANALYZE river_job`)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for range 8 { // more often than PostgreSQL creates custom plans for a prepared statement
		if jobs, err := jobstore.New(conn).List(t.Context(), jobstore.Filter{Queue: "default", Limit: 3}); err != nil || len(jobs) != 3 {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
	}
	for name, look := range map[string]struct {
		want int
		at   func(tx pgx.Tx) (int, error)
	}{
		"a queue without jobs":     {0, list(t, jobstore.Filter{Queue: "nothing"})},
		"a queue with few":         {2, list(t, jobstore.Filter{Queue: "rare"})},
		"a state with few":         {manyJobs / 1000, list(t, jobstore.Filter{State: "discarded", Limit: 100})},
		"a kind that is not known": {0, list(t, jobstore.Filter{Kind: "unknown"})},
		"jobs to retry":            {manyJobs / 1000, count(t, jobstore.Retry, jobstore.Filter{})},
		"jobs to cancel":           {manyJobs / 1000, count(t, jobstore.Cancel, jobstore.Filter{Queue: "default"})},
	} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			before, err := read(t, tx)
			if err != nil {
				return err
			}
			got, err := look.at(tx)
			if err != nil {
				return err
			}
			after, err := read(t, tx)
			if got != look.want || after-before > manyJobs/5 {
				t.Errorf("%s: %d were found, want %d, and %d read of %d", name, got, look.want, after-before, manyJobs)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// read returns how many jobs the session has read and not reported yet.
func read(t *testing.T, tx pgx.Tx) (jobs int64, err error) {
	t.Helper()
	err = tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'river_job'`).Scan(&jobs)
	return jobs, err
}

func list(t *testing.T, filter jobstore.Filter) func(pgx.Tx) (int, error) {
	t.Helper()
	return func(tx pgx.Tx) (int, error) {
		jobs, err := jobstore.New(tx).List(t.Context(), filter)
		return len(jobs), err
	}
}

func count(t *testing.T, action jobstore.Action, filter jobstore.Filter) func(pgx.Tx) (int, error) {
	t.Helper()
	return func(tx pgx.Tx) (int, error) {
		matching, err := jobstore.New(tx).CountMatching(t.Context(), action, filter, jobstore.Matching{})
		return int(matching.Jobs), err
	}
}

// A pause of a queue that only old jobs name, or nothing, reads few jobs, even if there are so
// many queues that the planner expects jobs of any queue soon.
func TestPauseReadsFewJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (args, kind, queue, state, max_attempts, finalized_at)
		SELECT '{}', 'k', 'q' || i / 200, 'completed', 1, now() FROM generate_series(1, $1::int) AS i`, manyJobs)
	exec(t, pool, `VACUUM ANALYZE river_job`)
	for queue, known := range map[string]bool{"nothing": false, "q99": true} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			before, err := read(t, tx)
			if err != nil {
				return err
			}
			_, paused, err := jobstore.New(tx).PauseQueue(t.Context(), queue, jobstore.QueuePauseOrder{By: "ada"})
			if paused != known || errors.Is(err, jobstore.ErrNoQueue) == known {
				t.Errorf("%s: paused %v, %v", queue, paused, err)
			}
			after, err := read(t, tx)
			if err != nil || after-before > manyJobs/5 {
				t.Errorf("%s: read %d jobs of %d, %v", queue, after-before, manyJobs, err)
			}
			var setting string
			if err := tx.QueryRow(t.Context(), `SHOW enable_seqscan`).Scan(&setting); err != nil || setting != "on" {
				t.Errorf("%s: afterwards, enable_seqscan is %s, %v", queue, setting, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The active runs of a cron are found among many that have ended without reading those, whatever
// the statistics say, and even if the same statement has often been used.
func TestCronRunsReadFewJobs(t *testing.T) {
	t.Parallel()
	for name, statistics := range map[string]struct{ active, ended string }{ // statements after the runs are active, and after they have ended
		"no statistics":       {`SELECT 1`, `SELECT 1`},
		"statistics":          {`SELECT 1`, `VACUUM ANALYZE river_job`},
		"outdated statistics": {`VACUUM ANALYZE river_job`, `SELECT 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			insertCronRuns(t, pool)
			exec(t, pool, statistics.active)
			exec(t, pool, endCronRuns)
			exec(t, pool, statistics.ended)
			readsFewCronRuns(t, pool)
		})
	}
}

// So it is if VACUUM and ANALYZE have found that there are no jobs. A transaction that is open
// meanwhile keeps their rows, and so the size of the table: the planner then expects one job in as
// many pages.
func TestCronRunsReadFewJobsAfterStatisticsOfNone(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{"rows are removed": ``, "rows are kept": `SELECT 1`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			insertCronRuns(t, pool)
			err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), statement) // takes the snapshot if there is one
				exec(t, pool, `DELETE FROM river_job`)
				exec(t, pool, `VACUUM ANALYZE river_job`)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			insertCronRuns(t, pool)
			exec(t, pool, endCronRuns)
			readsFewCronRuns(t, pool)
		})
	}
}

// endCronRuns ends all runs of insertCronRuns but three.
const endCronRuns = `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id NOT IN (5, 6, 10)`

// insertCronRuns inserts manyJobs waiting runs of the crons often and rare.
func insertCronRuns(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `ALTER TABLE river_job SET (autovacuum_enabled = false)`)
	exec(t, pool, `
		INSERT INTO river_job (id, args, kind, max_attempts, metadata)
		SELECT i, '{}', 'k', 1, jsonb_build_object('forge:cron', CASE WHEN i % 10 = 0 THEN 'rare' ELSE 'often' END)
		FROM generate_series(1, $1::int) AS i`, manyJobs)
}

// readsFewCronRuns checks what is found of the runs that endCronRuns left, and how many jobs that
// reads.
func readsFewCronRuns(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for range 8 { // more often than PostgreSQL creates custom plans for a prepared statement
		cronRuns(t, conn)
	}
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		before, err := read(t, tx)
		if err != nil {
			return err
		}
		found := cronRuns(t, tx)
		after, err := read(t, tx)
		want := map[string][]int64{"often": {manyJobs - 1, 5, 6}, "rare": {manyJobs, 10, 10}}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("newest, oldest active and newest active runs (-want +got):\n%s", diff)
		}
		if after-before > 50 {
			t.Errorf("%d jobs were read", after-before)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// cronRuns returns the newest run, the oldest active one and the newest active one of crons.
func cronRuns(t *testing.T, db interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
},
) map[string][]int64 {
	t.Helper()
	found := map[string][]int64{}
	var batch pgx.Batch
	jobstore.BatchCronRuns(&batch, []string{"often", "rare", "unknown"}, []int64{0, 0, 0}, func(r jobstore.CronRuns) {
		found[r.Cron] = []int64{r.Newest, r.Oldest, r.Active.ID}
	})
	if err := db.SendBatch(t.Context(), &batch).Close(); err != nil {
		t.Fatal(err)
	}
	return found
}

// Jobs that retention has removed are left out.
func TestStatesReturnsExistingJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO river_job (id, args, kind, state, max_attempts, finalized_at) VALUES (7, '{}', 'k', 'completed', 1, now()), (8, '{}', 'k', 'running', 1, NULL)`)
	got, err := jobstore.New(pool).States(t.Context(), []int64{7, 8, 9})
	if err != nil || len(got) != 2 || got[7] != "completed" || got[8] != "running" {
		t.Errorf("%v, %v", got, err)
	}
	if none, err := jobstore.New(pool).States(t.Context(), nil); err != nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
}
