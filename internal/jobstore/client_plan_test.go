package jobstore

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// removed matches the number of rejected join rows in the output of EXPLAIN ANALYZE.
var removed = regexp.MustCompile(`Rows Removed by Join Filter: (\d+)`)

// Writing n results must not take n*n comparisons, for any plan on a table of medium
// size.
func TestResultsAreNotComparedWithEveryRunningJob(t *testing.T) {
	t.Parallel()
	const running = 400
	pool := pgtest.Pool(t)
	run := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	run(`INSERT INTO forge_nodes (node_id, incarnation) VALUES ('node-a', '00000000000000aa')`)
	const client = "node-a-00000000000000aa"
	run(`INSERT INTO river_job (args, kind) SELECT '{}', 'k' FROM generate_series(1, 12000)`)
	run(`
		UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = ARRAY[$2::text]
		WHERE id IN (SELECT id FROM river_job ORDER BY id LIMIT $1)`, running, client)
	rows, err := pool.Query(t.Context(), `SELECT id FROM river_job WHERE state = 'running'`)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) != running {
		t.Fatalf("%d jobs run (%v)", len(ids), err)
	}
	ends, states, none := make([]time.Time, running), make([]string, running), make([]*string, running)
	for i := range ends {
		ends[i], states[i] = time.Now(), "completed"
	}
	args := pgx.NamedArgs{
		"client": client, "node": "node-a", "incarnation": "00000000000000aa", "ids": ids, "finalized_ats": ends,
		"attempts": make([]*int, running), "errors": none, "metadata": none, "scheduled_ats": make([]*time.Time, running), "states": states,
		"claimed_ats": make([]*time.Time, running),
	}
	run(`ANALYZE river_job`)
	for name, sql := range map[string]string{"plain successes": completeSQL, "other results": setStateSQL} {
		plan := explain(t, pool, sql, args)
		if !strings.Contains(plan, "rows=400") {
			t.Errorf("%s: the results were not written:\n%s", name, plan)
		}
		for _, found := range removed.FindAllStringSubmatch(plan, -1) {
			if n, _ := strconv.Atoi(found[1]); n > 10*running {
				t.Errorf("%s: a join rejected %d pairs:\n%s", name, n, plan)
			}
		}
	}
}

// explain executes a statement with EXPLAIN ANALYZE and rolls it back.
func explain(t *testing.T, pool *pgxpool.Pool, sql string, args pgx.NamedArgs) string {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+sql, args)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
