package jobstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The claim of jobs of whose limits the leader has counted the places. Their offers name the
// version of the limits. It changes with the limits, and when the leader recalls its offers: at the
// beginning of its work, and before it gives the place of an offer to another job. The claim shares
// the lock of forge_limits that such a change takes exclusively. So if its version is the current
// one, the leader that has made the offer still counts its place, and whoever changes the version
// next sees what was claimed.

// claimLockTimeoutSQL is rowLockTimeoutSQL as a statement.
const claimLockTimeoutSQL = `SELECT ` + rowLockTimeoutSQL

// MaxCountedClaim is the maximum number of jobs of an Offer of ClaimCounted.
const MaxCountedClaim = notedTogether

// asCountedSQL is true for the rows of which the leader has read the keys, if the version of the
// limits is that of the offer. If the claim waits for a row, PostgreSQL evaluates it again for the
// newest row. A leader of an earlier version sends neither.
const asCountedSQL = `
  AND (coalesce(cardinality(@rows::bigint[]), 0) = 0 OR (@rows::bigint[])[array_position(@ids::bigint[], river_job.id)] = river_job.xmin::text::bigint)
  AND @limit_version::bigint IN (0, (` + limitVersionSQL + `))`

// notedCountedSQL notes the claimed jobs with their limits.
const notedCountedSQL = `
), noted AS (
    INSERT INTO forge_claims (client_id, ids, limited_ids, limit_locks)
    SELECT @client::text, (SELECT array_agg(id) FROM claimed), coalesce(array_agg(n.id), '{}'), coalesce(array_agg(n.lock), '{}')
    FROM unnest(@limited_ids::bigint[], @limit_locks::bigint[]) AS n (id, lock)
    WHERE (n.id IN (SELECT id FROM claimed)) IS TRUE
    HAVING EXISTS (SELECT FROM claimed)
)
SELECT ` + jobColumns + `
FROM claimed AS river_job`

const (
	claimCountedSQL = `
WITH claimed AS (` + beforeStartSQL + `now()` + afterStartSQL + `
WHERE id = ANY (@ids::bigint[])` + asCountedSQL + claimableSQL + notedCountedSQL

	// claimCountedUnlockedSQL is the same without the rows that another transaction has locked.
	claimCountedUnlockedSQL = `
WITH claimed AS (` + beforeStartSQL + `now()` + afterStartSQL + `
WHERE id = ANY (ARRAY (` + unlockedSQL + `))` + asCountedSQL + claimableSQL + notedCountedSQL
)

// ClaimCounted claims limited jobs that the leader has counted, at most MaxCountedClaim for each
// offer, like ClaimOffers: in one round trip and one transaction, with the same errors.
func (c *Client) ClaimCounted(ctx context.Context, offers []Offer, claimed func(offer int, row *Row) error) error {
	return c.claimCounted(ctx, claimCountedSQL, offers, claimed)
}

// ClaimCountedUnlocked is like ClaimCounted, but leaves the jobs whose rows another transaction has
// locked. It takes longer.
func (c *Client) ClaimCountedUnlocked(ctx context.Context, offers []Offer, claimed func(offer int, row *Row) error) error {
	return c.claimCounted(ctx, claimCountedUnlockedSQL, offers, claimed)
}

func (c *Client) claimCounted(ctx context.Context, sql string, offers []Offer, claimed func(offer int, row *Row) error) error {
	batch := &pgx.Batch{}
	batch.Queue(shareLimitsSQL)
	batch.Queue(claimLockTimeoutSQL)
	for _, offer := range offers {
		batch.Queue(sql, c.countedArgs(offer))
	}
	sent := c.pool.SendBatch(ctx, batch)
	return cmp.Or(readClaims(sent, 2, len(offers), claimed), sent.Close())
}

func (c *Client) countedArgs(o Offer) pgx.StrictNamedArgs {
	args := c.limitedArgs(o)
	limited, locks := make(ids, 0, len(o.IDs)), make(ids, 0, len(o.IDs))
	for i, id := range o.IDs {
		for _, lock := range o.Locks[i] {
			limited, locks = append(limited, id), append(locks, lock)
		}
	}
	args["limited_ids"], args["limit_locks"] = limited, locks
	return args
}

// RecallOffers changes the version of the limits, so that no offer under another version is claimed
// any more. What was claimed under them is then visible. It waits for running claims, while no
// further ones begin, for at most timeout. The error is IsLocked if that was too short.
func (s *Store) RecallOffers(ctx context.Context, timeout time.Duration) (version int64, err error) {
	if err := s.db.QueryRow(ctx, `SELECT forge_recall_offers($1)`, timeout).Scan(&version); err != nil {
		return 0, fmt.Errorf("recall offers: %w", err)
	}
	return version, nil
}
