package jobstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func newTestClient(t *testing.T, pool *pgxpool.Pool) *Client {
	t.Helper()
	mustExec(t, pool, `INSERT INTO forge_leaders (role, term) VALUES ('scheduler', 1)`)
	mustExec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ('n', '00000000000000aa')`)
	return NewClient(pool, Identity{ClientID: "n-00000000000000aa", NodeID: "n", Incarnation: "00000000000000aa", Schema: "public"})
}

func numbers(first, last int64) (ids []int64) {
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

func claim(t *testing.T, client *Client, ids []int64) {
	t.Helper()
	rows, err := claimUnlimited(t.Context(), client, Offer{Queue: "default", IDs: ids, Term: 1, MaxAttemptedBy: 100})
	if err != nil || len(rows) != len(ids) {
		t.Fatalf("claimed %d of %d jobs: %v", len(rows), len(ids), err)
	}
}

// No claim writes an index entry: nothing that it changes is in an index, and the pages have
// room for it.
func TestClaimsAreHeapOnly(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	const jobs = 2000
	mustExec(t, pool, `
		INSERT INTO river_job (args, kind, unique_key, unique_states, metadata)
		SELECT '{"n": 12345}', 'k', CASE WHEN i % 2 = 0 THEN i::text::bytea END, CASE WHEN i % 2 = 0 THEN B'11110101' END,
		       CASE WHEN i % 3 = 0 THEN '{"forge:cron": "nightly"}' ELSE '{}' END::jsonb
		FROM generate_series(1, $1::int) AS i`, jobs)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for first := int64(1); first <= jobs; first += 50 {
		tag, err := tx.Exec(t.Context(), claimSQL, client.claimArgs(Offer{Queue: "default", IDs: numbers(first, first+49), Term: 1, MaxAttemptedBy: 100}))
		if err != nil || tag.RowsAffected() != 50 {
			t.Fatalf("claimed %d jobs: %v", tag.RowsAffected(), err)
		}
	}
	var updated, heapOnly int
	err = tx.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'river_job'`).Scan(&updated, &heapOnly)
	if err != nil || updated != jobs || heapOnly < jobs*95/100 {
		t.Errorf("%d of %d updates were heap-only: %v", heapOnly, updated, err)
	}
}

// running returns the running jobs by their states, and by the notes of claims.
func running(t *testing.T, pool *pgxpool.Pool) (stated, noted []int64) {
	t.Helper()
	for _, read := range []struct {
		sql  string
		into *[]int64
	}{
		{`SELECT id FROM river_job WHERE state = 'running' ORDER BY id`, &stated},
		{`SELECT id FROM river_job WHERE ` + isRunning + ` ORDER BY id`, &noted},
	} {
		rows, err := pool.Query(t.Context(), read.sql)
		if err != nil {
			t.Fatal(err)
		}
		if *read.into, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
			t.Fatal(err)
		}
	}
	return stated, noted
}

func forgetClaims(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := New(pool).ForgetClaims(t.Context(), 0, 1000); err != nil {
		t.Fatal(err)
	}
}

// Every running job is noted, whoever made it run, until it has ended.
func TestRunningJobsAreNoted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT '{}', 'k' FROM generate_series(1, 20)`)
	demand := func(what string, want []int64, claims string) {
		t.Helper()
		stated, noted := running(t, pool)
		if diff := cmp.Diff(want, stated); diff != "" {
			t.Errorf("%s: jobs run (-want +got):\n%s", what, diff)
		}
		if diff := cmp.Diff(stated, noted); diff != "" {
			t.Errorf("%s: noted jobs (-running +noted):\n%s", what, diff)
		}
		var found string
		if err := pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(client_id || ' ' || ids::text, ', ' ORDER BY ids), '') FROM forge_claims`).Scan(&found); err != nil || found != claims {
			t.Errorf("%s: forge_claims has %q, want %q: %v", what, found, claims, err)
		}
	}
	claim(t, client, numbers(1, 4))
	demand("a claim", numbers(1, 4), "n-00000000000000aa {1,2,3,4}")
	mustExec(t, pool, `UPDATE river_job SET state = 'running', attempted_by = '{other}' WHERE id = 5`)
	mustExec(t, pool, `INSERT INTO river_job (id, args, kind, state) VALUES (30, '{}', 'k', 'running')`)
	demand("other programs", append(numbers(1, 5), 30), "n-00000000000000aa {1,2,3,4}, other {5},  {30}")
	mustExec(t, pool, `UPDATE river_job SET attempted_by = '{x,y}' WHERE id = 30`)
	mustExec(t, pool, `UPDATE river_job SET metadata = '{"a": 1}', state = state WHERE id = 5`)
	demand("another owner", append(numbers(1, 5), 30), "n-00000000000000aa {1,2,3,4}, other {5},  {30}, y {30}")

	now := time.Now()
	done, err := client.Complete(t.Context(), []int64{1, 2}, []*time.Time{&now, &now}, make([]*time.Time, 2))
	if err != nil || len(done) != 2 {
		t.Fatal(done, err)
	}
	mustExec(t, pool, `UPDATE river_job SET state = 'retryable' WHERE id = 5`)
	forgetClaims(t, pool)
	demand("results", []int64{3, 4, 30}, "n-00000000000000aa {3,4},  {30}, y {30}")
	mustExec(t, pool, `UPDATE river_job SET state = 'available' WHERE id IN (3, 5)`)
	claim(t, client, []int64{3, 5})
	demand("second claims", []int64{3, 4, 5, 30}, "n-00000000000000aa {3,4}, n-00000000000000aa {3,5},  {30}, y {30}")
	mustExec(t, pool, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE state = 'running'`)
	forgetClaims(t, pool)
	demand("the end", []int64{}, "")
}

// The note of a claim says that its jobs have no limit. Otherwise each count would look for their limits.
func TestNotesOfUnlimitedJobsSayIt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO river_job (id, args, kind) VALUES (1, '{}', 'k')`)
	claimed, err := claimUnlimited(t.Context(), client, Offer{Queue: "default", IDs: numbers(1, 1), Term: 1, MaxAttemptedBy: 100})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %v: %v", claimed, err)
	}
	var notes, unknown int
	err = pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE limit_locks IS NULL) FROM forge_claims`).Scan(&notes, &unknown)
	if err != nil || notes != 1 || unknown != 0 {
		t.Errorf("%d notes, %d with unknown limits: %v", notes, unknown, err)
	}
}

// Claims are forgotten even if a synchronous replica is gone.
func TestForgettingClaimsWaitsForNoReplica(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO forge_claims (client_id, ids) VALUES ('c', '{1,2}')`)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := New(tx).ForgetClaims(t.Context(), 0, 1000); err != nil {
		t.Fatal(err)
	}
	if left := claimedIDs(t, tx); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
	var level string
	if err := tx.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit')`).Scan(&level); err != nil || level != "off" {
		t.Errorf("synchronous_commit is %q: %v", level, err)
	}
}

func claimedIDs(t *testing.T, db postgres.DB) []string {
	t.Helper()
	ids, err := postgres.Collect(t.Context(), db, pgx.RowTo[string], `SELECT ids::text FROM forge_claims ORDER BY ids`)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// Claims that another transaction has locked are left, whether they would be deleted or
// shortened.
func TestForgettingClaimsSkipsLockedRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO river_job (id, args, kind) SELECT i, '{}', 'k' FROM generate_series(1, 9) AS i`)
	mustExec(t, pool, `UPDATE river_job SET state = 'running' WHERE id IN (3, 6)`)
	mustExec(t, pool, `DELETE FROM forge_claims`)
	mustExec(t, pool, `INSERT INTO forge_claims (client_id, ids) VALUES ('c', '{1,2,3}'), ('c', '{4,5,6}'), ('c', '{7}'), ('c', '{8}')`)
	held, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(t.Context()) }()
	if _, err := held.Exec(t.Context(), `SELECT FROM forge_claims WHERE ids IN ('{1,2,3}', '{7}') FOR KEY SHARE`); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '10ms'`); err != nil {
		t.Fatal(err)
	}
	if _, err := New(tx).ForgetClaims(t.Context(), 0, 1000); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"{1,2,3}", "{6}", "{7}"}, claimedIDs(t, tx)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

// One call reads the blocks that it is told to, even if the table has many more, and each
// claim is in one of the blocks.
func TestForgettingClaimsReadsFewBlocks(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	const claims = 30_000
	mustExec(t, pool, `INSERT INTO forge_claims (client_id, ids) SELECT 'c', ARRAY[i] FROM generate_series(1, $1::int) AS i`, claims)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		if plan := forgetPlan(t, pool, mode); strings.Contains(plan, "Seq Scan on forge_claims") || !strings.Contains(plan, "Tid Range Scan") {
			t.Errorf("%s: %s", mode, plan)
		}
	}
	left := claims
	for from := int64(0); ; from += 2 {
		blocks, err := New(pool).ForgetClaims(t.Context(), from, 2)
		if err != nil {
			t.Fatal(err)
		}
		now := len(claimedIDs(t, pool))
		if gone := left - now; gone < 10 || gone > 600 {
			t.Fatalf("from block %d: %d claims were forgotten", from, gone)
		}
		if left = now; from+2 >= blocks {
			break
		}
	}
	if left != 0 {
		t.Errorf("%d claims are left", left)
	}
}

func forgetPlan(t *testing.T, pool *pgxpool.Pool, mode string) (plan string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL plan_cache_mode = `+mode); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), `PREPARE forget (bigint, bigint) AS `+forgetClaimsSQL, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		rows, err := postgres.Collect(t.Context(), tx, pgx.RowTo[string], `EXPLAIN EXECUTE forget (3, 5)`, pgx.QueryExecModeSimpleProtocol)
		plan = strings.Join(rows, "\n")
		_, deallocated := tx.Exec(t.Context(), `DEALLOCATE forget`)
		return errors.Join(err, deallocated)
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// A claim of limited jobs counts those that run, while claims are noted and forgotten at the
// same time.
func TestLimitedClaimsCountNotedJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	const most, jobs = 7, 60
	mustExec(t, pool, `INSERT INTO forge_limits (scope, name, most) VALUES ('queue', 'default', $1)`, most)
	mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT '{}', 'k' FROM generate_series(1, $1::int)`, jobs)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := New(pool).ForgetClaims(t.Context(), 0, 1000); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	left, ended := numbers(1, jobs), 0
	for ended < jobs {
		rows, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: left, Term: 1, MaxAttemptedBy: 100})
		if err != nil {
			t.Fatal(err)
		}
		stated, noted := running(t, pool)
		if len(stated) > most || !slices.Equal(stated, noted) {
			t.Fatalf("%v run, %v are noted, at most %d may run", stated, noted, most)
		}
		if len(rows) == 0 {
			t.Fatalf("%d of %d jobs have ended, and no other is claimed", ended, jobs)
		}
		ids, ends := make([]int64, len(rows)), make([]*time.Time, len(rows))
		now := time.Now()
		for i, row := range rows {
			ids[i], ends[i] = row.ID, &now
			left = slices.DeleteFunc(left, func(id int64) bool { return id == row.ID })
		}
		done, err := client.Complete(t.Context(), ids, ends, make([]*time.Time, len(ids)))
		if err != nil || len(done) != len(ids) {
			t.Fatal(done, err)
		}
		ended += len(done)
	}
	close(stop)
	<-stopped
}

// The condition of a state selects exactly the jobs in it.
func TestConditionsOfStates(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	states := slices.Concat(waitingStates, finishedStates, []string{stateRunning})
	for _, state := range states {
		mustExec(t, pool, `INSERT INTO river_job (args, kind, state, finalized_at)
			VALUES ('{}', 'k', $1::text::river_job_state, CASE WHEN $1 IN ('completed', 'cancelled', 'discarded') THEN now() END)`, state)
	}
	for _, state := range states {
		var found []string
		err := pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT array_agg(state::text) FROM river_job WHERE %s`, stateSQL(state))).Scan(&found)
		if err != nil || !slices.Equal(found, []string{state}) {
			t.Errorf("the condition of %s selects %v: %v", state, found, err)
		}
	}
}
