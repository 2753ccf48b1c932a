package riveradapter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// nodesOf returns pilots of n nodes on one database, with a limit of slots that no test reaches.
func nodesOf(t *testing.T, n int) []*Pilot {
	t.Helper()
	first := newPilot(t)
	pilots := []*Pilot{first}
	for i := 1; i < n; i++ {
		id, incarnation := fmt.Sprintf("node-%d", i), fmt.Sprintf("%016x", i)
		exec(t, first.pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ($1, $2)`, id, incarnation)
		pilots = append(pilots, New(Options{
			Pool: first.pool, NodeID: id, Incarnation: incarnation, ClientID: id + "-" + incarnation, Schema: "public",
			Slots: 100, Queues: map[string]int{"default": 100}, Logger: first.logger, Claims: first.claims, Refused: first.refused,
			Fenced: func(string) {}, Start: func(claimed []Claimed) []Claimed { return claimed }, Cancel: func(int64) {}, Unfetched: func(*rivertype.JobRow) bool { return false },
		}))
	}
	return pilots
}

// insertTenants adds available jobs of a kind, one for each tenant in turn, and returns their ids.
func insertTenants(t *testing.T, pool *pgxpool.Pool, kind string, tenants ...string) []int64 {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		INSERT INTO river_job (args, kind) SELECT jsonb_build_object('tenant', nullif(tenant, '')), $1
		FROM unnest($2::text[]) WITH ORDINALITY AS t (tenant, n) ORDER BY n RETURNING id`, kind, tenants)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// A job needs a place in each of its limits: of the queue and the kind, in total and by key.
func TestClaimRespectsLimitsByKey(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	limit(t, p.pool,
		jobstore.Limit{Scope: "queue", Name: "default", Most: 6}, jobstore.Limit{Scope: "queue", Name: "default", Most: 2, Key: "args.tenant"},
		jobstore.Limit{Scope: "job", Name: "slow", Most: 3}, jobstore.Limit{Scope: "job", Name: "slow", Most: 1, Key: "args.tenant"})
	claim := func(seq int64, ids ...int64) []int64 {
		t.Helper()
		got, err := claimOffered(t.Context(), p, seq, true, ids...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	fast := insertTenants(t, p.pool, "fast", "a", "a", "a", "b", "", "")
	if got, want := claim(1, fast...), []int64{fast[0], fast[1], fast[3], fast[4], fast[5]}; !slices.Equal(got, want) {
		t.Errorf("with two for each tenant and for jobs without one it claimed %v, want %v", got, want)
	}
	exec(t, p.pool, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = ANY ($1)`, fast[3:])
	slow := insertTenants(t, p.pool, "slow", "a", "b", "b", "c", "d", "e")
	if got, want := claim(2, slow...), []int64{slow[1], slow[3], slow[4]}; !slices.Equal(got, want) {
		t.Errorf("with two of tenant a running, one slow job for each tenant and three in all it claimed %v, want %v", got, want)
	}
	exec(t, p.pool, `UPDATE river_job SET state = 'retryable', scheduled_at = now() WHERE id = $1`, fast[0])
	if got := claim(3, fast[2], slow[0]); !slices.Equal(got, fast[2:3]) {
		t.Errorf("after an attempt of tenant a has failed it claimed %v, want %v", got, fast[2:3])
	}
}

// Concurrent claims of several nodes never exceed the limit of a key, while it changes and
// while a node of an earlier version claims.
func TestConcurrentClaimsRespectLimitsByKey(t *testing.T) {
	t.Parallel()
	const rounds, tenants = 12, 5
	nodes := nodesOf(t, 4)
	pool := nodes[0].pool
	inForce := func(perTenant int) []jobstore.Limit {
		return []jobstore.Limit{
			{Scope: "queue", Name: "default", Most: perTenant, Key: "args.tenant"},
			{Scope: "job", Name: "k", Most: perTenant, Key: "args.tenant"},
			{Scope: "queue", Name: "default", Most: 7},
		}
	}
	limit(t, pool, inForce(2)...)
	var names []string
	for i := range (len(nodes) + 1) * rounds * tenants {
		names = append(names, fmt.Sprintf("t%d", i/2%tenants))
	}
	ids := insertTenants(t, pool, "k", names...)
	var wg sync.WaitGroup
	for n, p := range nodes {
		wg.Go(func() {
			for round := range rounds {
				from := (n*rounds + round) * tenants
				got, err := claimOffered(t.Context(), p, int64(round)+1, true, ids[from:from+tenants]...)
				if err == nil {
					err = checkAndFinish(t.Context(), pool, got)
				}
				if err != nil {
					t.Errorf("node %d: %v", n, err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for round := range rounds {
			from := (len(nodes)*rounds + round) * tenants
			got, err := earlierClaim(t.Context(), pool, ids[from:from+tenants])
			if err == nil {
				err = checkAndFinish(t.Context(), pool, got)
			}
			if err != nil {
				t.Errorf("an earlier version: %v", err)
				return
			}
			limit(t, pool, inForce(1+round%2)...)
		}
	})
	wg.Wait()
	var completed int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job WHERE state = 'completed'`).Scan(&completed); err != nil || completed < tenants {
		t.Errorf("%d jobs were claimed and ended: %v", completed, err)
	}
}

// checkAndFinish checks how many jobs of each tenant run, and completes those that were claimed.
func checkAndFinish(ctx context.Context, pool *pgxpool.Pool, claimed []int64) error {
	rows, err := pool.Query(ctx, `SELECT args ->> 'tenant' FROM river_job WHERE state = 'running'`)
	if err != nil {
		return err
	}
	running, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	count := map[string]int{}
	for _, tenant := range running {
		count[tenant]++
	}
	if most := slices.Max(append(slices.Collect(maps.Values(count)), 0)); most > 2 || len(running) > 7 {
		return fmt.Errorf("of the tenants %v jobs run, the limits are 2 for each and 7 in all", count)
	}
	_, err = pool.Exec(ctx, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = ANY ($1)`, claimed)
	return err
}

// earlierClaim claims as a version without limits by key: it locks the rows of forge_limits
// that it knows, and takes what they leave.
func earlierClaim(ctx context.Context, pool *pgxpool.Pool, ids []int64) (claimed []int64, err error) {
	const of = ` FROM forge_limits WHERE scope = 'queue' AND name = 'default' OR scope = 'job' AND name IN (SELECT kind FROM river_job WHERE id = ANY ($1))`
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT name`+of+` ORDER BY scope, name FOR NO KEY UPDATE OF forge_limits`, ids); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			WITH places AS (
				SELECT most - (SELECT count(*) FROM river_job AS j WHERE j.state = 'running'
					AND CASE scope WHEN 'queue' THEN j.queue ELSE j.kind END = name) AS open`+of+`
			)
			UPDATE river_job SET state = 'running', attempted_by = '{earlier}'
			WHERE state = 'available' AND id = ANY ($1) AND id IN (
				SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS rank FROM river_job WHERE id = ANY ($1) AND state = 'available') AS r
				WHERE rank <= (SELECT min(open) FROM places))
			RETURNING id`, ids)
		if err != nil {
			return err
		}
		claimed, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return claimed, err
}
