package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/migrations"
)

// The totals and the history of the gauge that was renamed go on under its new name.
func TestNodesMetricKeepsItsHistory(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := newMigrator(pool)
	takeBack(t, pool, m, 55)
	mustExec(t, pool, `INSERT INTO forge_metrics_cluster (metric, at, value, term) VALUES ('forge_node_count', now(), 3, 1), ('other', now(), 3, 1)`)
	mustExec(t, pool, `INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last) VALUES (60, 'forge_node_count', '{}', now(), 1, 2, 3)`)
	mustUp(t, m)
	var found int
	err := pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM forge_metrics_cluster WHERE metric = 'forge_nodes')
		     + (SELECT count(*) FROM forge_metrics_rollups WHERE metric = 'forge_nodes')`).Scan(&found)
	if err != nil || found != 2 {
		t.Errorf("%d rows have the new name, %v; want 2", found, err)
	}
}

// takeBack takes migrations back, the last one that of a version.
func takeBack(t *testing.T, pool *pgxpool.Pool, m *migrations.Migrator, version int64) {
	t.Helper()
	for applied := true; applied; {
		if err := m.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM forge_migrations WHERE version_id = $1 AND is_applied)`, version).Scan(&applied)
		if err != nil {
			t.Fatal(err)
		}
	}
}
