package jobstore

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// perTenant is a limit of the queue default.
func perTenant(most int) Limit {
	return Limit{Scope: ScopeQueue, Name: "default", Most: most, Key: "args.tenant"}
}

// countedOffer offers the jobs as a leader does that has counted them.
func countedOffer(t *testing.T, pool *pgxpool.Pool, ids ...int64) Offer {
	t.Helper()
	keys, version, err := New(pool).JobKeys(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	o := Offer{Queue: "default", Term: 1, MaxAttemptedBy: 100, LimitVersion: version, IDs: ids, Rows: make([]int64, len(ids)), Locks: make([][]int64, len(ids))}
	for _, key := range keys {
		i := slices.Index(ids, key.ID)
		o.Rows[i], o.Locks[i] = key.Row, append(o.Locks[i], key.Lock)
	}
	return o
}

// claimCounted claims the jobs of an offer as a node does, and returns their sorted ids.
func claimCounted(ctx context.Context, client *Client, o Offer) (ids []int64, err error) {
	claimed := func(_ int, row *Row) error { ids = append(ids, row.ID); return nil }
	if err = client.ClaimCounted(ctx, []Offer{o}, claimed); IsLocked(err) {
		ids = nil
		err = client.ClaimCountedUnlocked(ctx, []Offer{o}, claimed)
	}
	slices.Sort(ids)
	return ids, err
}

// limitedPool returns a database with a limit by tenant, and a client. It has an available job of each
// tenant, with the ids from 1 on.
func limitedPool(t *testing.T, most int, tenants ...string) (*pgxpool.Pool, *Client) {
	t.Helper()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	setLimits(t, pool, perTenant(most))
	mustExec(t, pool, `INSERT INTO river_job (id, args, kind) SELECT n, jsonb_build_object('tenant', tenant), 'k' FROM unnest($1::text[]) WITH ORDINALITY AS t (tenant, n)`, tenants)
	return pool, client
}

// The leader has counted the places of the offered jobs, so the claim takes all of them. The next
// count includes them, under the limits of the queue and of the kind.
func TestCountedClaimsTakePlaces(t *testing.T) {
	t.Parallel()
	pool, client := limitedPool(t, 2, "a", "b", "a", "a")
	setLimits(t, pool, perTenant(2), Limit{Scope: ScopeQueue, Name: "default", Most: 9}, Limit{Scope: ScopeJob, Name: "k", Most: 9, Key: "args.tenant"})
	if ids, err := claimCounted(t.Context(), client, countedOffer(t, pool, 1, 2, 3)); err != nil || !slices.Equal(ids, numbers(1, 3)) {
		t.Fatalf("claimed %v: %v", ids, err)
	}
	places, err := New(pool).PlacesTaken(t.Context(), []Places{
		{Scope: ScopeQueue, Name: "default", Class: ClassKey, Key: "a"},
		{Scope: ScopeQueue, Name: "default", Class: ClassAll},
		{Scope: ScopeJob, Name: "k", Class: ClassKey, Key: "a"},
	})
	got := map[string]int{}
	for _, p := range places {
		got[p.Scope+" "+p.Class] = p.Jobs
	}
	if diff := cmp.Diff(map[string]int{"queue key": 2, "queue all": 3, "job key": 2}, got); diff != "" || err != nil {
		t.Errorf("places (-want +got), %v:\n%s", err, diff)
	}
	offer := countedOffer(t, pool, 4)
	if running, err := New(pool).RunningUnder(t.Context(), offer.Locks[0]); err != nil || len(running) != 3 || running[offer.Locks[0][0]]+running[offer.Locks[0][1]]+running[offer.Locks[0][2]] != 7 {
		t.Errorf("running under the locks %v: %v, %v", offer.Locks[0], running, err)
	}
	var lookedUp int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_claims WHERE limit_locks IS NULL`).Scan(&lookedUp); err != nil || lookedUp != 0 {
		t.Errorf("%d claims do not say under which limits: %v", lookedUp, err)
	}
	if claimed, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: numbers(4, 4), Term: 1, MaxAttemptedBy: 100}); err != nil || len(claimed) != 0 {
		t.Errorf("a claim that counts takes %d jobs over the limit: %v", len(claimed), err)
	}
}

// No job is claimed under another version of the limits than the one that the leader has counted
// under, neither with nor without a count.
func TestOffersUnderOtherLimitsAreNotClaimed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, pool *pgxpool.Pool){
		"unchanged": nil,
		"recalled": func(t *testing.T, pool *pgxpool.Pool) {
			t.Helper()
			recall(t, pool)
		},
		"changed": func(t *testing.T, pool *pgxpool.Pool) {
			t.Helper()
			setLimits(t, pool, perTenant(3))
		},
		"changed by hand": func(t *testing.T, pool *pgxpool.Pool) {
			t.Helper()
			mustExec(t, pool, `UPDATE forge_limits SET most = 1`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, client := limitedPool(t, 2, "a", "b")
			counted, limited := countedOffer(t, pool, 1), countedOffer(t, pool, 2)
			want := numbers(1, 1)
			if change != nil {
				change(t, pool)
				want = nil
			}
			if ids, err := claimCounted(t.Context(), client, counted); err != nil || !slices.Equal(ids, want) {
				t.Errorf("counted: claimed %v, want %v: %v", ids, want, err)
			}
			if claimed, err := claimLimited(t.Context(), client, limited); err != nil || len(claimed) != len(want) {
				t.Errorf("limited: claimed %v: %v", claimed, err)
			}
			if ids, err := claimCounted(t.Context(), client, countedOffer(t, pool, 1)); err != nil || change != nil && len(ids) != 1 {
				t.Errorf("offered again: claimed %v: %v", ids, err)
			}
		})
	}
}

// recall recalls the offers and returns the new version.
func recall(t *testing.T, pool *pgxpool.Pool) (version int64) {
	t.Helper()
	version, err := New(pool).RecallOffers(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// A recall, and a change of the limits by hand, waits for claims, so that the next count sees what
// they have taken.
func TestRecallWaitsForClaims(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	setLimits(t, pool, perTenant(2))
	claiming, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = claiming.Rollback(context.Background()) }()
	if _, err := claiming.Exec(t.Context(), shareLimitsSQL); err != nil {
		t.Fatal(err)
	}
	if _, err := New(pool).RecallOffers(t.Context(), 50*time.Millisecond); !IsLocked(err) {
		t.Errorf("during a claim: %v", err)
	}
	if _, err = pool.Exec(t.Context(), `SET lock_timeout = '50ms'; UPDATE forge_limits SET most = 1`); !IsLocked(err) {
		t.Errorf("a change by hand during a claim: %v", err)
	}
	before, _, err := New(pool).LimitVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := claiming.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if version := recall(t, pool); version <= before {
		t.Errorf("version %d after %d", version, before)
	}
}

// A counted claim does not take a job whose row has changed since the leader has read it, also while
// the claim waits for it.
func TestCountedClaimLeavesChangedJobs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change string
		want   []int64
	}{
		"arguments": {`UPDATE river_job SET args = '{"tenant": "c"}' WHERE id = 1`, numbers(2, 2)},
		"nothing":   {`SELECT FROM river_job WHERE id = 1 FOR UPDATE`, numbers(1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, client := limitedPool(t, 2, "a", "b")
			offer := countedOffer(t, pool, 1, 2)
			ids := claimDuring(t, pool, test.change, func(ctx context.Context, tx pgx.Tx) ([]Row, error) {
				return postgres.Collect(ctx, tx, scanRow, claimCountedSQL, client.limitedArgs(offer))
			})
			if diff := cmp.Diff(test.want, ids); diff != "" {
				t.Errorf("claimed (-want +got):\n%s", diff)
			}
			if test.want[0] == 2 {
				if ids, err := claimCounted(t.Context(), client, offer); err != nil || len(ids) != 0 {
					t.Errorf("by the same offer again, claimed %v: %v", ids, err)
				}
			}
		})
	}
}

// Jobs that the claim counts itself are of the rows of which the leader has read the keys, too.
func TestLimitedClaimLeavesChangedJobs(t *testing.T) {
	t.Parallel()
	pool, client := limitedPool(t, 1, "a", "b")
	offer := countedOffer(t, pool, 1, 2)
	mustExec(t, pool, `UPDATE river_job SET args = '{"tenant": "c"}' WHERE id = 1`)
	if claimed, err := claimLimited(t.Context(), client, offer); err != nil || len(claimed) != 1 || claimed[0].ID != 2 {
		t.Errorf("claimed %v: %v", claimed, err)
	}
}

// A job whose row another transaction has locked does not hold the others up.
func TestCountedClaimLeavesLockedRows(t *testing.T) {
	t.Parallel()
	pool, client := limitedPool(t, 2, "a", "b")
	offer := countedOffer(t, pool, 1, 2)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM river_job WHERE id = 1 FOR UPDATE`); err != nil {
			return err
		}
		ids, err := claimCounted(t.Context(), client, offer)
		if !slices.Equal(ids, numbers(2, 2)) {
			t.Errorf("claimed %v", ids)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A claim notes all jobs of its offer. Those that it did not get do not count, and count once after
// the next claim of the same client.
func TestNotesOfUnclaimedJobsDoNotCount(t *testing.T) {
	t.Parallel()
	pool, client := limitedPool(t, 3, "a", "a")
	offer := countedOffer(t, pool, 1, 2)
	lock := offer.Locks[0][0]
	mustExec(t, pool, `UPDATE river_job SET priority = 2 WHERE id = 2`)
	for _, o := range []Offer{offer, countedOffer(t, pool, 2)} {
		ids, err := claimCounted(t.Context(), client, o)
		want := int(o.IDs[0]) // one job with each offer
		if err != nil || !slices.Equal(ids, o.IDs[:1]) {
			t.Errorf("claimed %v of %v: %v", ids, o.IDs, err)
		}
		if running, err := New(pool).RunningUnder(t.Context(), []int64{lock}); err != nil || running[lock] != want {
			t.Errorf("%d running jobs, want %d: %v", running[lock], want, err)
		}
	}
}
