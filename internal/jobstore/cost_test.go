package jobstore

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// PostgreSQL compiles statements above jit_above_cost, which takes longer than to execute these.
// Few of all jobs are available here, but almost all open ones are.
func TestListsOfQueuesAreNotCompiled(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, sql := range []string{
		`INSERT INTO river_job (kind, args, max_attempts, queue, priority, state, finalized_at)
			SELECT 'k', '{}', 1, 'default', 1 + i % 4, s::river_job_state, CASE s WHEN 'completed' THEN now() END
			FROM generate_series(1, 200000) AS i, LATERAL (SELECT CASE WHEN i % 1000 = 7 THEN 'available' ELSE 'completed' END AS s) AS states`,
		`VACUUM ANALYZE river_job`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]statement{
		"queues": {sql: queuesSQL}, "waiting queues": {sql: waitingQueuesSQL, args: []any{maxWaiting}}, "a queue": {sql: queueSQL, args: []any{pgx.QueryExecModeExec, "default"}},
	} {
		var output []byte
		if err := pool.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) "+s.sql, s.args...).Scan(&output); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var plans []struct {
			Plan struct {
				Cost float64 `json:"Total Cost"`
			}
		}
		if err := json.Unmarshal(output, &plans); err != nil {
			t.Fatal(err)
		}
		if cost := plans[0].Plan.Cost; cost > 50_000 {
			t.Errorf("%s: the planner expects a cost of %.0f", name, cost)
		}
	}
}
