package jobstore

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A scan of many jobs allocates almost nothing for each: the leader scans all the time.
//
//nolint:paralleltest // counts allocations
func TestScanAllocatesLittle(t *testing.T) {
	const jobs = 2000
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT '{}', 'k' || i % 5 FROM generate_series(1, $1::int) AS i`, jobs)
	store := New(pool)
	scan := func() {
		found := 0
		_, err := store.ScanAvailable(t.Context(), []Scan{{Queue: "default", First: 1, Limit: jobs}}, time.Second, func(*AvailableJob) { found++ })
		if err != nil || found != jobs {
			t.Fatalf("scanned %d of %d jobs: %v", found, jobs, err)
		}
	}
	if allocations := testing.AllocsPerRun(20, scan); allocations > jobs/5 {
		t.Errorf("a scan of %d jobs makes %.0f allocations", jobs, allocations)
	}
}
