package jobstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A connection that has planned its statements for a small table reads all jobs of a burst. When
// the table was analyzed, it does not.
func TestBurstIsAnalyzed(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insert := `INSERT INTO river_job (args, kind, max_attempts) SELECT '{}', 'k', 1 FROM generate_series(1, $1::int)`
	exec(t, pool, `ALTER TABLE river_job SET (autovacuum_enabled = false)`)
	exec(t, pool, insert, 20)
	exec(t, pool, `VACUUM ANALYZE river_job`)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	analyze := func() bool {
		analyzed, err := jobstore.New(pool).AnalyzeGrown(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return analyzed
	}
	readByScan(t, conn)
	if analyze() {
		t.Error("a table that has not grown was analyzed")
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), insert, manyJobs)
		if analyze() {
			t.Error("a table was analyzed whose new rows nobody sees")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if jobs := readByScan(t, conn); jobs < manyJobs {
		t.Errorf("%d jobs were read with the plan for the small table: this shows nothing", jobs)
	}
	for deadline := time.Now().Add(time.Minute); !analyze(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) { // PostgreSQL counts changes a moment late
			t.Fatal("the table was not analyzed after the burst")
		}
	}
	if jobs := readByScan(t, conn); jobs > 100 {
		t.Errorf("%d jobs were read", jobs)
	}
	if analyze() {
		t.Error("the table was analyzed again")
	}
}

// readByScan returns how many jobs a scan reads.
func readByScan(t *testing.T, conn *pgxpool.Conn) (jobs int64) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		before, err := read(t, tx)
		if err != nil {
			return err
		}
		scans := []jobstore.Scan{{Queue: "default", First: 1, Limit: 10}}
		if _, err := jobstore.New(tx).ScanAvailable(t.Context(), scans, time.Second, func(*jobstore.AvailableJob) {}); err != nil {
			return err
		}
		after, err := read(t, tx)
		jobs = after - before
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// A role that may not analyze the jobs does nothing, which logs no warning on the server.
func TestBurstIsLeftToOwnerOfTable(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO river_job (args, kind, max_attempts) SELECT '{}', 'k', 1 FROM generate_series(1, $1::int)`, manyJobs)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `CREATE ROLE forge_burst; SET LOCAL ROLE forge_burst`); err != nil {
		t.Fatal(err)
	}
	if analyzed, err := jobstore.New(tx).AnalyzeGrown(t.Context()); err != nil || analyzed {
		t.Errorf("analyzed %t, %v", analyzed, err)
	}
}
