package rescue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// claimBlocks is the maximum number of blocks of forge_claims that one transaction cleans.
	claimBlocks = 64
	// claimInterval is the pause after all of them are clean.
	claimInterval = time.Second
)

// claimCleaner deletes the rows of forge_claims whose jobs have ended. The table may be large
// when a term begins: other River clients add to it even if no scheduler leads.
type claimCleaner struct {
	pool *pgxpool.Pool
	size *postgres.BatchSize
	next int64 // block
}

func (c *claimCleaner) step(ctx context.Context) (time.Duration, error) {
	last := false
	cleaned, err := c.size.Do(ctx, stepTimeout, func(ctx context.Context, limit int) (int, error) {
		blocks, err := jobstore.New(c.pool).ForgetClaims(ctx, c.next, limit)
		last = blocks <= c.next+int64(limit)
		return limit, err
	})
	c.next += int64(cleaned)
	if err != nil || !last {
		return 0, err
	}
	c.next = 0
	return claimInterval, nil
}
