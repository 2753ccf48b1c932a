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

// A claim does not take a job whose key changes after the keys were locked: another claim of
// the new key does not wait for it.
func TestClaimTakesOnlyJobsWithLockedKeys(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO forge_limits (scope, name, most, key_source, key_path) VALUES ('queue', 'default', 1, NULL, NULL), ('queue_key', 'default', 1, 'args', '{tenant}')`)
	mustExec(t, pool, `INSERT INTO river_job (args, kind) VALUES ('{"tenant": "a"}', 'k'), ('{"tenant": "b"}', 'k')`)
	offer := Offer{Queue: "default", IDs: numbers(1, 2), Term: 1, MaxAttemptedBy: 100}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), lockClaimKeysSQL, pgx.StrictNamedArgs{"ids": offer.IDs, "client": client.of.ClientID}); err != nil {
			return err
		}
		mustExec(t, pool, `UPDATE river_job SET args = '{"tenant": "c"}' WHERE id = 1`)
		claimed, err := postgres.Collect(t.Context(), tx, scanRow, claimLimitedSQL, client.limitedArgs(offer))
		if err == nil && (len(claimed) != 1 || claimed[0].ID != 2) {
			t.Errorf("claimed %d jobs, want only job 2", len(claimed))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if claimed, err := claimLimited(t.Context(), client, offer); err != nil || len(claimed) != 1 || claimed[0].ID != 1 {
		t.Errorf("then %d jobs were claimed, want job 1: %v", len(claimed), err)
	}
}

// A claim does not take a job that another transaction changes while the claim waits for its row:
// the claim has counted the job under the keys and the weight that it had before.
func TestClaimLeavesJobsThatChangeMeanwhile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit  Limit
		change string
		want   []int64
	}{
		"arguments":          {Limit{Most: 1, Key: "args.tenant"}, `args = '{"tenant": "c"}'`, []int64{2}},
		"indexed column too": {Limit{Most: 1, Key: "args.tenant"}, `args = '{"tenant": "c"}', priority = 2`, []int64{2}},
		"metadata":           {Limit{Most: 1, Key: "metadata.tenant"}, `metadata = '{"tenant": "c"}'`, nil},
		"tags":               {Limit{Most: 1, Key: "tags.tenant"}, `tags = '{tenant=c}'`, nil},
		"weight":             {Limit{Most: 3, Per: time.Hour}, `metadata = '{"forge:weight": 3}'`, []int64{2}},
		"nothing":            {Limit{Most: 1, Key: "args.tenant"}, ``, []int64{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			client := newTestClient(t, pool)
			test.limit.Scope, test.limit.Name = ScopeQueue, "default"
			setLimits(t, pool, test.limit)
			mustExec(t, pool, `INSERT INTO river_job (args, kind) VALUES ('{"tenant": "a"}', 'k'), ('{"tenant": "b"}', 'k')`)
			offer := Offer{Queue: "default", IDs: numbers(1, 2), Term: 1, MaxAttemptedBy: 100}
			change := `SELECT FROM river_job WHERE id = 1 FOR UPDATE`
			if test.change != "" {
				change = `UPDATE river_job SET ` + test.change + ` WHERE id = 1`
			}
			ids := claimDuring(t, pool, change, func(ctx context.Context, tx pgx.Tx) ([]Row, error) {
				if _, err := tx.Exec(ctx, lockClaimKeysSQL, pgx.StrictNamedArgs{"ids": offer.IDs, "client": client.of.ClientID}); err != nil {
					return nil, err
				}
				if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '30s'`); err != nil { // longer than a slow machine needs
					return nil, err
				}
				return postgres.Collect(ctx, tx, scanRow, claimLimitedSQL, client.limitedArgs(offer))
			})
			if diff := cmp.Diff(test.want, ids); diff != "" {
				t.Errorf("claimed (-want +got):\n%s", diff)
			}
		})
	}
}

// claimDuring claims jobs, in a transaction of its own, while a statement of another one, which commits
// as soon as the claim waits for it, holds a row. It returns the sorted ids of the claimed jobs.
func claimDuring(t *testing.T, pool *pgxpool.Pool, change string, claim func(ctx context.Context, tx pgx.Tx) ([]Row, error)) (ids []int64) {
	t.Helper()
	changing, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = changing.Rollback(t.Context()) }()
	if _, err := changing.Exec(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan error, 1)
	go func() {
		claimed <- pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			rows, err := claim(t.Context(), tx)
			for _, row := range rows {
				ids = append(ids, row.ID)
			}
			return err
		})
	}()
	awaitLock(t, pool)
	if err := changing.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	return ids
}

// awaitLock waits until a session of the database waits for a lock.
func awaitLock(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for waiting := 0; waiting == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no session waits for a lock")
		}
		if err := pool.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
}

// Claims of different keys do not wait for each other.
func TestClaimsOfDifferentKeysDoNotWait(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO forge_limits (scope, name, most, key_source, key_path) VALUES ('queue', 'default', 1, NULL, NULL), ('queue_key', 'default', 1, 'args', '{tenant}')`)
	mustExec(t, pool, `INSERT INTO river_job (args, kind) VALUES ('{"tenant": "a"}', 'k'), ('{"tenant": "b"}', 'k')`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, sql := range []string{lockClaimLimitsSQL, lockClaimKeysSQL} {
			if _, err := tx.Exec(t.Context(), sql, pgx.NamedArgs{"ids": []int64{1}, "queue": "default", "client": "c"}); err != nil {
				return err
			}
		}
		claimed, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: []int64{2}, Term: 1, MaxAttemptedBy: 100})
		if err != nil || len(claimed) != 1 {
			t.Errorf("of another key, claimed %d jobs: %v", len(claimed), err)
		}
		if claimed, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: []int64{1}, Term: 1, MaxAttemptedBy: 100}); err == nil {
			t.Errorf("of the same key, claimed %d jobs without waiting for the lock", len(claimed))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// claimUnlimited claims jobs without a limit and returns their rows.
func claimUnlimited(ctx context.Context, client *Client, o Offer) (claimed []Row, err error) {
	err = client.ClaimOffers(ctx, []Offer{o}, func(_ int, row *Row) error { return keep(&claimed, row) })
	return claimed, err
}

// claimLimited claims jobs with a limit and returns their rows.
func claimLimited(ctx context.Context, client *Client, o Offer) (claimed []Row, err error) {
	locked, err := client.ClaimLimited(ctx, o, func(row *Row) error { return keep(&claimed, row) })
	if locked {
		claimed = nil
		err = client.ClaimLimitedUnlocked(ctx, o, func(row *Row) error { return keep(&claimed, row) })
	}
	return claimed, err
}

// keep appends a copy of a row that is valid only now.
func keep(rows *[]Row, row *Row) error {
	kept, at := *row, *row.AttemptedAt
	kept.AttemptedAt = &at
	*rows = append(*rows, kept)
	return nil
}
