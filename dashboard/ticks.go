package dashboard

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// How many ticks a strip shows: in a table, and on the page of one cron.
const (
	stripLength = 30
	stripLong   = 60
)

// tickCache keeps the newest ticks of each cron for as long as its watermark
// stands still, so that a page with a hundred daily crons reads no ledger.
// Ticks by hand do not move the watermark: an entry is read again after ten
// seconds.
type tickCache struct {
	crons Crons

	mu      sync.Mutex
	entries map[string]tickEntry
}

type tickEntry struct {
	watermark time.Time
	readAt    time.Time
	ticks     []cronstore.Tick
}

func newTickCache(crons Crons) *tickCache {
	return &tickCache{crons: crons, entries: map[string]tickEntry{}}
}

// get returns the newest ticks of each cron, and reads those that may have changed all
// at once.
func (c *tickCache) get(ctx context.Context, crons []cronstore.Cron, now time.Time) (map[string][]cronstore.Tick, error) {
	ticks := make(map[string][]cronstore.Tick, len(crons))
	stale := map[string]cronstore.Cron{}
	c.mu.Lock()
	for _, cron := range crons {
		if entry, ok := c.entries[cron.Name]; ok && entry.fresh(cron, now) {
			ticks[cron.Name] = entry.ticks
		} else {
			stale[cron.Name] = cron
		}
	}
	c.mu.Unlock()
	if len(stale) == 0 {
		return ticks, nil
	}
	read, err := c.crons.NewestTicks(ctx, slices.Sorted(maps.Keys(stale)), stripLength)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, cron := range stale {
		ticks[name] = read[name]
		c.entries[name] = tickEntry{watermark: cron.Watermark, readAt: now, ticks: read[name]}
	}
	return ticks, nil
}

// keep forgets crons that are gone.
func (c *tickCache) keep(crons []cronstore.Outlined) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := make(map[string]tickEntry, len(c.entries))
	for _, cron := range crons {
		if entry, ok := c.entries[cron.Name]; ok {
			kept[cron.Name] = entry
		}
	}
	c.entries = kept
}

func (e tickEntry) fresh(cron cronstore.Cron, now time.Time) bool {
	if !e.watermark.Equal(cron.Watermark) || now.Sub(e.readAt) >= 10*time.Second {
		return false
	}
	for _, t := range e.ticks {
		if t.Verdict == cronstore.Queued {
			return false
		}
	}
	return true
}
