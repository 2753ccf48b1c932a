package queues

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
)

const (
	// recentTime is the time of Recent.
	recentTime = 15 * time.Minute
	// staleAfter is how old the newest minute may be.
	staleAfter = 5 * time.Minute
)

// Recent is what happened in the queue in the newest minutes that the metrics aggregator has
// recorded.
type Recent struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Attempts that started and finished, and those that failed, timed out or were lost.
	Started  float64 `json:"started_per_minute"`
	Finished float64 `json:"finished_per_minute"`
	Failed   float64 `json:"failed_per_minute"`
	// Wait is how many seconds jobs waited from due to started, Took how many attempts ran.
	Wait aggregator.Percentiles `json:"wait"`
	Took aggregator.Percentiles `json:"took"`
}

// addRecent leaves Recent nil if no metrics aggregator has recorded the last minutes.
func (r *Reader) addRecent(ctx context.Context, report *Report) error {
	store := aggregator.NewStore(r.db)
	last, err := store.Last(ctx, aggregator.Minute)
	if err != nil || last.IsZero() || report.Now.Sub(last) > staleAfter {
		return err
	}
	to := last.Add(time.Minute).UTC()
	recent := Recent{From: to.Add(-recentTime), To: to}
	shares, err := store.SharePoints(ctx, aggregator.ShareQuery{Dimension: "queue", Step: aggregator.Minute, From: recent.From, To: to}, recentTime, []string{report.Name})
	if err != nil {
		return err
	}
	for _, share := range shares {
		if share.Key != report.Name {
			continue
		}
		minutes := recentTime.Minutes()
		recent.Finished, recent.Failed = float64(share.Attempts)/minutes, float64(share.Failures)/minutes
		if share.Wait != nil {
			recent.Started = share.Wait.Count() / minutes // each start has a wait
		}
		recent.Wait, recent.Took = aggregator.PercentilesOf(share.Wait), aggregator.PercentilesOf(share.Took)
	}
	report.Recent = &recent
	return nil
}
