package incident_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/incident"
)

// A report reads the rows of its seconds, however many there are before and after them, even
// if the same statements have often been used.
func TestReportReadsFewRows(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "crashed")
	const many = 30_000
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, recorded_at, lateness_ms)
		SELECT 'c' || n % 100, $1::timestamptz + s * n * interval '5 s', 'fired', 2, 'b', $1::timestamptz + s * n * interval '5 s', 1
		FROM generate_series(1, $2::int) n, unnest('{-1,1}'::int[]) s`, c.ended, many)
	c.exec(`INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason, gap)
		SELECT 'scheduler', n, 'a', '', $1::timestamptz + n * interval '1 min', $1::timestamptz + n * interval '1 min', 'crashed', '1 s' FROM generate_series(3, $2::int) n`, c.ended, many)
	c.exec(`INSERT INTO forge_events (at, type) SELECT $1::timestamptz + s * n * interval '1 min', 'leader_lost' FROM generate_series(1, $2::int) n, unnest('{-1,1}'::int[]) s`, c.ended, many)
	c.exec(`INSERT INTO river_job (args, kind, state, max_attempts, finalized_at) SELECT '{}', 'k', 'completed', 1, now() FROM generate_series(1, $1::int)`, many)
	c.cron("c1", "@every 1s", 0)
	c.exec(`VACUUM ANALYZE forge_cron_ticks, forge_leader_history, forge_events, river_job`)
	conn, err := c.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for range 8 { // more often than PostgreSQL creates custom plans for a prepared statement
		if _, err := incident.New(conn, 30*day).Read(t.Context(), "scheduler", 2); err != nil {
			t.Fatal(err)
		}
	}
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		before, err := rowsRead(t, tx)
		if err != nil {
			return err
		}
		if _, err := incident.New(tx, 30*day).Read(t.Context(), "scheduler", 2); err != nil {
			return err
		}
		after, err := rowsRead(t, tx)
		if after-before > many/10 {
			t.Errorf("a report read %d rows", after-before)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// rowsRead returns how many rows of all tables the session has read and not reported yet.
func rowsRead(t *testing.T, tx pgx.Tx) (rows int64, err error) {
	t.Helper()
	err = tx.QueryRow(t.Context(), `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables`).Scan(&rows)
	return rows, err
}
