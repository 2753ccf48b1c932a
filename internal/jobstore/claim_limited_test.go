package jobstore

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

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
		claimed, err := postgres.Collect(t.Context(), tx, scanRow, claimLimitedSQL, client.claimArgs(offer))
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
