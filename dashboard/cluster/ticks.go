package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// The number of ticks in a strip, in a table and on the page of one cron.
const (
	StripLength = 30
	StripLong   = 60
)

// tickCache caches the newest ticks of each cron and the states of their jobs until the
// cron's watermark moves, so that a page with a hundred daily crons does not read the
// ledger. Triggered ticks and ended jobs do not move the watermark, so an entry expires
// after ten seconds.
type tickCache struct {
	crons Crons
	jobs  Jobs

	mu      sync.Mutex
	entries map[string]tickEntry
}

type tickEntry struct {
	watermark time.Time
	readAt    time.Time
	ticks     []cronstore.Tick
	// states are the states of the ticks' jobs when they were read, by id.
	states map[int64]string
}

func newTickCache(crons Crons, jobs Jobs) *tickCache {
	return &tickCache{crons: crons, jobs: jobs, entries: map[string]tickEntry{}}
}

// Get returns the newest ticks of each cron with the states of their jobs. It reads all
// expired entries at once.
func (c *tickCache) Get(ctx context.Context, crons []cronstore.Cron, now time.Time) (map[string][]cronstore.Tick, map[int64]string, error) {
	ticks := make(map[string][]cronstore.Tick, len(crons))
	states := map[int64]string{}
	stale := map[string]cronstore.Cron{}
	c.mu.Lock()
	for _, cron := range crons {
		entry, ok := c.entries[cron.Name]
		maps.Copy(states, entry.states)
		if ok && entry.fresh(cron, now) {
			ticks[cron.Name] = entry.ticks
		} else {
			stale[cron.Name] = cron
		}
	}
	c.mu.Unlock()
	if len(stale) == 0 {
		return ticks, states, nil
	}
	read, err := c.crons.NewestTicks(ctx, slices.Sorted(maps.Keys(stale)), StripLength)
	if err != nil {
		return nil, nil, err
	}
	if err := c.readStates(ctx, read, states); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, cron := range stale {
		ticks[name] = read[name]
		c.entries[name] = newTickEntry(cron, now, read[name], states)
	}
	return ticks, states, nil
}

// readStates adds the states of the ticks' jobs. It does not read those of jobs that are
// known to have succeeded, which are most.
func (c *tickCache) readStates(ctx context.Context, read map[string][]cronstore.Tick, states map[int64]string) error {
	var ids []int64
	for _, ticks := range read {
		for _, id := range JobsOf(ticks) {
			if states[id] != "completed" {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	newest, err := c.jobs.States(ctx, ids)
	maps.Copy(states, newest)
	return err
}

func newTickEntry(cron cronstore.Cron, now time.Time, ticks []cronstore.Tick, states map[int64]string) tickEntry {
	own := make(map[int64]string, len(ticks))
	for _, id := range JobsOf(ticks) {
		if state, ok := states[id]; ok {
			own[id] = state
		}
	}
	return tickEntry{watermark: cron.Watermark, readAt: now, ticks: ticks, states: own}
}

// JobsOf returns the jobs of ticks.
func JobsOf(ticks []cronstore.Tick) []int64 {
	var ids []int64
	for _, t := range ticks {
		if t.JobID != 0 {
			ids = append(ids, t.JobID)
		}
	}
	return ids
}

// keep removes the entries of crons that no longer exist.
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
