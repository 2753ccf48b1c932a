package jobstore

import (
	"context"
	"fmt"
	"time"
)

// The claim of jobs of whose limits the leader has counted the places. Their offers name the
// version of the limits. It changes with the limits, and when the leader recalls its offers: at the
// beginning of its work, and before it gives the place of an offer to another job. The claim shares
// the lock of forge_limits that such a change takes exclusively. So if its version is the current
// one, the leader that has made the offer still counts its place, and whoever changes the version
// next sees what was claimed.

// MaxCountedClaim is the maximum number of jobs of an Offer of ClaimCounted. The claim searches Rows
// for each of them.
const MaxCountedClaim = 200

// asCountedSQL is true for the rows of which the leader has read the keys, if the version of the
// limits is that of the offer. If the claim waits for a row, PostgreSQL evaluates it again for the
// newest row. A leader of an earlier version sends neither.
const asCountedSQL = `
  AND (coalesce(cardinality(@rows::bigint[]), 0) = 0 OR (@rows::bigint[])[array_position(@ids::bigint[], river_job.id)] = river_job.xmin::text::bigint)
  AND @limit_version::bigint IN (0, (` + limitVersionSQL + `))`

const (
	claimCountedSQL = beforeStartSQL + `now()` + afterStartSQL + `
WHERE id = ANY (@ids::bigint[])` + asCountedSQL + claimableSQL

	// claimCountedUnlockedSQL is the same without the rows that another transaction has locked.
	claimCountedUnlockedSQL = beforeStartSQL + `now()` + afterStartSQL + `
WHERE id = ANY (ARRAY (` + unlockedSQL + `))` + asCountedSQL + claimableSQL
)

// ClaimCounted claims limited jobs that the leader has counted, at most MaxCountedClaim for each
// offer, like ClaimOffers: in one round trip and one transaction, with the same errors.
func (c *Client) ClaimCounted(ctx context.Context, offers []Offer, claimed func(offer int, row *Row) error) error {
	return c.claimOffers(ctx, claimCountedSQL, c.limitedArgs, offers, claimed)
}

// ClaimCountedUnlocked is like ClaimCounted, but leaves the jobs whose rows another transaction has
// locked. It takes longer.
func (c *Client) ClaimCountedUnlocked(ctx context.Context, offers []Offer, claimed func(offer int, row *Row) error) error {
	return c.claimOffers(ctx, claimCountedUnlockedSQL, c.limitedArgs, offers, claimed)
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
