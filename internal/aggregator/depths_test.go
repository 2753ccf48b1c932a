package aggregator

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Unfinished jobs are counted at a bounded number of rows per second, and at each sum if
// there are few.
func TestDepthsReadBoundedRows(t *testing.T) {
	t.Parallel()
	const jobs = 3 * countedPerSecond
	pool := pgtest.Pool(t)
	add := func(n int) {
		t.Helper()
		_, err := pool.Exec(t.Context(), `INSERT INTO river_job (kind, args, max_attempts, queue) SELECT 'k', '{}', 1, 'q' FROM generate_series(1, $1)`, n)
		if err != nil {
			t.Fatal(err)
		}
	}
	var counts depths
	now := time.Now()
	check := func(after time.Duration, want, least, most int64) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			before := jobRowsRead(t, tx)
			samples, err := counts.get(t.Context(), tx, now.Add(after))
			if err != nil {
				return err
			}
			if read := jobRowsRead(t, tx) - before; read < least || read > most {
				t.Errorf("after %s: %d rows read, want %d to %d", after, read, least, most)
			}
			total := 0.0
			for _, s := range samples {
				total += s.Value
			}
			if int64(total) != want {
				t.Errorf("after %s: %v jobs, want %d", after, total, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(10)
	check(0, 10, 1, 1000)
	add(jobs)
	check(10*time.Millisecond, jobs+10, jobs, 10*jobs)
	add(10)
	check(time.Second, jobs+10, 0, 0)
	check(2*time.Second, jobs+10, 0, 0)
	check(4*time.Second, jobs+20, jobs, 10*jobs)
	check(-time.Hour, jobs+20, jobs, 10*jobs) // the clock was set back
}

// A count of very many jobs takes several sums, and until it is complete the result of the one
// before is valid.
func TestLongCountTakesSeveralSums(t *testing.T) {
	t.Parallel()
	const jobs = (maxCountPages + 2) * countedPerSecond
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO river_job (kind, args, max_attempts, queue) SELECT 'k', '{}', 1, 'q' FROM generate_series(1, $1::int)`, jobs)
	if err != nil {
		t.Fatal(err)
	}
	var counts depths
	now := time.Now()
	want := func(after time.Duration, want float64) {
		t.Helper()
		samples, err := counts.get(t.Context(), pool, now.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		total := -1.0
		for _, s := range samples {
			total = max(total, 0) + s.Value
		}
		if total != want {
			t.Errorf("after %s: %v jobs, want %v", after, total, want)
		}
	}
	want(0, -1) // the first count is not complete
	want(time.Second, jobs)
	if _, err := pool.Exec(t.Context(), `UPDATE river_job SET state = 'cancelled', finalized_at = now() WHERE id % 100 = 0`); err != nil {
		t.Fatal(err)
	}
	want(10*time.Second, jobs)
	want(20*time.Second, jobs)
	want(30*time.Second, jobs/100*99)
}

// jobRowsRead counts the job rows and index entries that the transaction has read.
func jobRowsRead(t *testing.T, tx pgx.Tx) (read int64) {
	t.Helper()
	err := tx.QueryRow(t.Context(), `
		SELECT pg_stat_get_xact_tuples_returned('river_job'::regclass) + sum(pg_stat_get_xact_tuples_returned(indexrelid))
		FROM pg_index WHERE indrelid = 'river_job'::regclass`).Scan(&read)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// The fullest queues have depths of their own, and the others share one.
func TestDepthsOfManyQueues(t *testing.T) {
	t.Parallel()
	counts := []jobstore.Count{{Queue: "full", State: "available", Jobs: 7}, {Queue: "full", State: "running", Jobs: 3}}
	for i := range maxDepths + 1 {
		counts = append(counts, jobstore.Count{Queue: fmt.Sprintf("q%04d", i), State: "available", Jobs: 1})
	}
	found := map[string]float64{}
	for _, s := range ofDepths(counts) {
		found[s.Labels["queue"]+" "+s.Labels["state"]] = s.Value
	}
	want := map[string]float64{"full available": 7, "full running": 3, Other + " available": 2}
	maps.DeleteFunc(found, func(name string, depth float64) bool { return name[0] == 'q' && depth == 1 })
	if !maps.Equal(found, want) {
		t.Errorf("%v, want %v besides the queues of one job", found, want)
	}
}
