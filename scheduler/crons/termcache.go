package crons

import (
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// termCache is what a Firer keeps from one term to its next, so that short terms do not
// start from nothing. No verdict depends on it.
type termCache struct {
	// timelines contains the cached timelines by the cron's name. Each is compared with its
	// row before use.
	timelines map[string]*cronstore.Timeline
	// floors contains the lowest job ids that can belong to an active run.
	floors map[string]int64
	// batchSize is the number of crons in a transaction. tickLimit is the number of due
	// ticks that it examines.
	batchSize, tickLimit *postgres.BatchSize
	// pageSize is the number of crons in one page.
	pageSize *postgres.BatchSize
	leadTime leadTime
	// overhead is the estimated duration of the round trips of a transaction. It
	// decreases slowly because some round trips are fast even on a busy machine.
	overhead time.Duration
}

func newTermCache() *termCache {
	return &termCache{
		timelines: map[string]*cronstore.Timeline{}, floors: map[string]int64{},
		batchSize: postgres.NewBatchSize(maxBatch, batchTarget), tickLimit: postgres.NewBatchSize(maxTicks, batchTarget),
		pageSize: postgres.NewBatchSize(maxPage, batchTarget),
	}
}

// forget drops the cached data of a cron.
func (c *termCache) forget(name string) {
	delete(c.timelines, name)
	delete(c.floors, name)
}
