package jobstore

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// taken is how many places of queue default's limit by key are taken for a value.
func taken(t *testing.T, pool *pgxpool.Pool, key string) int {
	t.Helper()
	places, err := New(pool).PlacesTaken(t.Context(), []Places{{Scope: ScopeQueue, Name: "default", Class: ClassKey, Key: key}})
	if err != nil || len(places) != 1 || places[0].Key != key {
		t.Fatalf("places of %q: %+v, %v", key, places, err)
	}
	return places[0].Jobs
}

// A running job counts under the limits in force, also if it was claimed under others, without
// any, or by another program. Its claim notes the limits, so that nothing else is looked up.
func TestRunningJobsCountUnderNewLimits(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT '{"tenant": "a", "region": "x"}', 'k' FROM generate_series(1, 4)`)
	claim(t, client, numbers(1, 1))
	setLimits(t, pool, Limit{Scope: ScopeQueue, Name: "default", Most: 9, Key: "args.tenant"})
	if got := taken(t, pool, "a"); got != 1 {
		t.Errorf("after a claim without a limit: %d places", got)
	}
	claimed, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: numbers(2, 3), Term: 1, MaxAttemptedBy: 100})
	if err != nil || len(claimed) != 2 {
		t.Fatalf("claimed %d jobs: %v", len(claimed), err)
	}
	mustExec(t, pool, `UPDATE river_job SET state = 'running', attempted_by = '{other}' WHERE id = 4`)
	if got := taken(t, pool, "a"); got != 4 {
		t.Errorf("after claims under the limit and by another program: %d places", got)
	}
	var noted int
	err = pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_claims WHERE limited_ids = ids AND cardinality(limit_locks) = 2`).Scan(&noted)
	if err != nil || noted != 1 {
		t.Errorf("%d claims have their limits: %v", noted, err)
	}
	setLimits(t, pool, Limit{Scope: ScopeQueue, Name: "default", Most: 9, Key: "args.region"})
	if got := taken(t, pool, "x"); got != 4 {
		t.Errorf("after a change of the key: %d places", got)
	}
	mustExec(t, pool, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id IN (1, 2)`)
	if got := taken(t, pool, "x"); got != 2 {
		t.Errorf("after the end of two jobs: %d places", got)
	}
}

// A job whose key changes before its retry on another node counts only under the new value, even
// while other jobs of the first claim still run.
func TestRetryCountsUnderNewKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	first, second := newTestClient(t, pool), newSecondClient(t, pool)
	setLimits(t, pool, Limit{Scope: ScopeQueue, Name: "default", Most: 9, Key: "args.tenant"})
	mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT '{"tenant": "a"}', 'k' FROM generate_series(1, 3)`)
	if _, err := claimLimited(t.Context(), first, Offer{Queue: "default", IDs: numbers(1, 3), Term: 1, MaxAttemptedBy: 100}); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `UPDATE river_job SET state = 'available', args = '{"tenant": "b"}' WHERE id = 1`)
	if _, err := claimLimited(t.Context(), second, Offer{Queue: "default", IDs: numbers(1, 1), Term: 1, MaxAttemptedBy: 100}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"a": 2, "b": 1} {
		if got := taken(t, pool, key); got != want {
			t.Errorf("%d places of %q, want %d", got, key, want)
		}
	}
}

// A change of the limits waits for claims without a limit, so that it sees them.
func TestChangeOfLimitsWaitsForClaims(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), shareLimitsSQL); err != nil {
			return err
		}
		_, err := pool.Exec(t.Context(), `SET lock_timeout = '50ms'; `+lockLimitsSQL)
		if err == nil {
			t.Error("the limits changed during a claim")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A shortened claim keeps the limits of the jobs that run.
func TestShortenedClaimsKeepLimits(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	setLimits(t, pool, Limit{Scope: ScopeQueue, Name: "default", Most: 9, Key: "args.tenant"})
	mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT jsonb_build_object('tenant', i), 'k' FROM generate_series(1, 4) AS i`)
	if _, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: numbers(1, 4), Term: 1, MaxAttemptedBy: 100}); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id <= 3`)
	forgetClaims(t, pool)
	var ids, limited []int64
	var locks int
	err := pool.QueryRow(t.Context(), `SELECT ids, limited_ids, cardinality(limit_locks) FROM forge_claims`).Scan(&ids, &limited, &locks)
	if err != nil || len(ids) != 1 || len(limited) != 1 || limited[0] != 4 || locks != 1 {
		t.Errorf("claims of %v, limited %v with %d locks: %v", ids, limited, locks, err)
	}
	if got := taken(t, pool, "4"); got != 1 {
		t.Errorf("%d places", got)
	}
}

// The limits are listed with what runs under them, and rates with what has started.
func TestUsagesHaveRates(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	setLimits(t, pool, Limit{Scope: ScopeQueue, Name: "default", Most: 9, Per: time.Hour, Burst: 3}, Limit{Scope: ScopeJob, Name: "k", Most: 5, Per: time.Minute, Key: "args.tenant"})
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO river_job (kind, args) SELECT 'k', '{"tenant": "a"}' FROM generate_series(1, 5)`)
	if rows, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: numbers(1, 4), Term: 1, MaxAttemptedBy: 100}); err != nil || len(rows) != 3 {
		t.Fatalf("claimed %d jobs: %v", len(rows), err)
	}
	usages, err := New(pool).Usages(t.Context())
	want := []Usage{
		{Limit: Limit{Scope: ScopeQueue, Name: "default", Most: 9, Per: time.Hour, Burst: 3}, Window: "1h", Started: new(int64(3)), Running: 3, Available: 2},
		{Limit: Limit{Scope: ScopeJob, Name: "k", Most: 5, Per: time.Minute, Key: "args.tenant"}, Window: "1m", Running: 3, Available: 2},
	}
	if diff := cmp.Diff(want, usages); diff != "" || err != nil {
		t.Errorf("usages (-want +got), %v:\n%s", err, diff)
	}
}

// A limit holds those waiting jobs back that have no place beside the running ones.
func TestBacklogOfLimit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO river_job (kind, queue, state, args) SELECT kind, queue, state::river_job_state, jsonb_build_object('tenant', tenant)
		FROM (VALUES ('k', 'default', 'running', 'a', 2), ('k', 'default', 'available', 'a', 3), ('k', 'default', 'available', 'b', 4),
			('l', 'default', 'available', 'c', 1), ('k', 'other', 'available', 'a', 7)) AS j (kind, queue, state, tenant, n), generate_series(1, n)`)
	for _, test := range []struct {
		limit Limit
		want  Backlog
	}{
		{Limit{Scope: ScopeQueue, Name: "default", Most: 100}, Backlog{}},
		{Limit{Scope: ScopeQueue, Name: "default", Most: 6}, Backlog{4, 1}},
		{Limit{Scope: ScopeQueue, Name: "default", Most: 1}, Backlog{8, 1}},
		{Limit{Scope: ScopeQueue, Name: "default", Most: 3, Key: "args.tenant"}, Backlog{3, 2}},
		{Limit{Scope: ScopeJob, Name: "k", Most: 10}, Backlog{6, 1}},
		{Limit{Scope: ScopeJob, Name: "k", Most: 5, Key: "args.tenant"}, Backlog{7, 1}},
		{Limit{Scope: ScopeQueue, Name: "default", Most: 1, Per: time.Hour}, Backlog{}},
	} {
		if got, err := New(pool).Backlog(t.Context(), test.limit, nil); err != nil || got != test.want {
			t.Errorf("%+v: %+v, want %+v: %v", test.limit, got, test.want, err)
		}
	}
}

// Of a limit per node, only the places of the given nodes count, each with what runs there.
func TestBacklogOfLimitPerNode(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO river_job (kind, state, args, attempted_at, attempted_by) SELECT 'k', state::river_job_state, '{"device": "d"}', now(), ARRAY['before', client]
		FROM (VALUES ('running', 'a', 4), ('running', 'draining', 2), ('available', NULL, 9)) AS j (state, client, n), generate_series(1, n)`)
	for _, test := range []struct {
		clients []string
		want    Backlog
	}{
		{[]string{"a"}, Backlog{9, 1}},
		{[]string{"a", "b"}, Backlog{6, 1}},
		{[]string{"a", "b", "c", "d"}, Backlog{}},
		{[]string{""}, Backlog{6, 1}},
	} {
		limit := Limit{Scope: ScopeQueue, Name: "default", Most: 3, Key: "args.device", PerNode: true}
		if got, err := New(pool).Backlog(t.Context(), limit, test.clients); err != nil || got != test.want {
			t.Errorf("nodes %q: %+v, want %+v: %v", test.clients, got, test.want, err)
		}
	}
}

var errRolledBack = errors.New("rolled back")

// The vacuum of the claims makes room for new ones. A role that does not own the table leaves it.
func TestVacuumMakesRoomForClaims(t *testing.T) {
	t.Parallel()
	const role = "not_the_owner"
	pool := pgtest.Pool(t)
	blocks := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT pg_relation_size('forge_claims') / 8192`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	fill := func() {
		t.Helper()
		mustExec(t, pool, `INSERT INTO forge_claims (client_id, ids) SELECT 'c', ARRAY (SELECT generate_series(1, 100)) FROM generate_series(1, 900)`)
		mustExec(t, pool, `DELETE FROM forge_claims`)
	}
	mustExec(t, pool, `ALTER TABLE forge_claims SET (autovacuum_enabled = off)`)
	fill()
	before := blocks()
	if err := New(pool).VacuumClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill()
	if after := blocks(); after > before+before/10 {
		t.Errorf("%d blocks became %d", before, after)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, sql := range []string{`CREATE ROLE ` + role, `GRANT USAGE ON SCHEMA public TO ` + role, `SET LOCAL ROLE ` + role} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		var may bool
		if err := tx.QueryRow(t.Context(), mayVacuumSQL).Scan(&may); err != nil {
			return err
		}
		if may {
			t.Error("a role that does not own the table would vacuum it")
		}
		return errRolledBack
	})
	if !errors.Is(err, errRolledBack) {
		t.Fatal(err)
	}
}
