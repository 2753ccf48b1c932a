package migrations_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Without the modes for duplicates, SQL enqueues as before, and what waits stays unique.
func TestDuplicatesDownAndUp(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := newMigrator(pool)
	before := details(t, pool)
	ids := enqueueMany(t, pool, `SELECT id FROM forge_enqueue_many('[{"kind": "k", "unique": "a", "replace": true}, {"kind": "k", "unique": "b", "throttle": "1h"}]')`)
	downBelow(t, m, 77)
	again := enqueueMany(t, pool, `SELECT id FROM forge_enqueue_many('[{"kind": "k", "unique": "a"}]') WHERE existing`)
	if diff := cmp.Diff(ids[:1], again); diff != "" {
		t.Errorf("the job that waits (-want +got):\n%s", diff)
	}
	if _, err := pool.Exec(t.Context(), `UPDATE river_job SET state = 'running' WHERE id = $1`, ids[0]); err != nil {
		t.Fatal(err)
	}
	if again := enqueueMany(t, pool, `SELECT forge_enqueue('k', '{}', '{"unique": "a"}')`); again[0] != ids[0] {
		t.Errorf("job %d was added while job %d runs", again[0], ids[0])
	}
	if _, err := pool.Exec(t.Context(), `SELECT forge_enqueue('k', '{}', '{"replace": true}')`); err == nil || !strings.Contains(err.Error(), "no such option") {
		t.Errorf("replace: %v", err)
	}
	mustUp(t, m)
	if diff := cmp.Diff(before, details(t, pool)); diff != "" {
		t.Errorf("after the way up (-want +got):\n%s", diff)
	}
}

func enqueueMany(t *testing.T, pool *pgxpool.Pool, sql string) []int64 {
	t.Helper()
	found, err := pool.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(found, pgx.RowTo[int64])
	if err != nil || len(ids) == 0 {
		t.Fatalf("%s: %v, %v", sql, ids, err)
	}
	return ids
}
