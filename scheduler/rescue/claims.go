package rescue

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// cleanedBlocks is the maximum number of blocks that one transaction cleans.
	cleanedBlocks = 64
	// claimInterval and windowInterval are the pauses after all blocks of forge_claims and of
	// forge_rate_windows are clean.
	claimInterval  = time.Second
	windowInterval = 10 * time.Second
	// busyInterval is the pause in its place if a table that is read in whole has more than
	// busyBlocks blocks.
	busyInterval = 200 * time.Millisecond
	busyBlocks   = 32
	// vacuumInterval is the minimum time between two vacuums, because each makes the statements
	// that read the table be planned again. It is longer if a vacuum takes a twentieth of it.
	vacuumInterval = time.Second
)

// blockCleaner deletes the rows of a table that have no meaning any more, some blocks at a
// time. A table may be large when a term begins: other River clients add claims even if no
// scheduler leads.
type blockCleaner struct {
	// clean deletes such rows in at most limit blocks, and returns the blocks of the table.
	clean func(ctx context.Context, from int64, limit int) (blocks int64, err error)
	// vacuum makes room in the table for new rows, or is nil.
	vacuum   func(ctx context.Context) error
	vacuumAt time.Time // earliest time of the next vacuum
	size     *postgres.BatchSize
	pause    time.Duration // after all blocks are clean
	next     int64         // block
}

func (c *blockCleaner) step(ctx context.Context) (time.Duration, error) {
	var blocks int64
	cleaned, err := c.size.Do(ctx, stepTimeout, func(ctx context.Context, limit int) (n int, err error) {
		blocks, err = c.clean(ctx, c.next, limit)
		return limit, err
	})
	c.next += int64(cleaned)
	if err != nil || blocks > c.next {
		return 0, err
	}
	c.next = 0
	if c.vacuum == nil || blocks <= busyBlocks {
		return c.pause, nil
	}
	began := time.Now()
	if began.Before(c.vacuumAt) {
		return busyInterval, nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err = c.vacuum(ctx)
	c.vacuumAt = time.Now().Add(max(vacuumInterval, 20*time.Since(began)))
	return busyInterval, err
}
