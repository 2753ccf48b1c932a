package aggregator

import (
	"context"
	"fmt"
	"time"
)

const (
	// workTime is the time of Work.
	workTime = 15 * time.Minute
	// staleAfter is how old the newest minute may be.
	staleAfter = 5 * time.Minute
)

// Work is what a cron, kind, node or queue did in the newest minutes that the metrics aggregator
// has recorded.
type Work struct {
	// From is 15 minutes before To, or later if the records, or the process of a node, began
	// later.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Unknown is the number of these minutes in which so many others had more attempts that its
	// own were not kept. The rates and percentiles are those of the other minutes.
	Unknown int `json:"unknown_minutes,omitempty"`
	// Attempts that started and finished, and those that failed, timed out or were lost.
	Started  float64 `json:"started_per_minute"`
	Finished float64 `json:"finished_per_minute"`
	Failed   float64 `json:"failed_per_minute"`
	// Wait is how many seconds jobs waited from due to started, Took how many attempts ran.
	Wait Percentiles `json:"wait"`
	Took Percentiles `json:"took"`
}

// Minutes returns the number of minutes from From to To.
func (w *Work) Minutes() int { return int(w.To.Sub(w.From) / time.Minute) }

// WorkOf returns the work of a key of a dimension in the last minutes, but not before the minute
// of since. It returns nil if it is not known: no metrics aggregator has recorded the last minutes,
// or in each of them others had more attempts.
func (s *Store) WorkOf(ctx context.Context, dimension, key string, now, since time.Time) (*Work, error) {
	last, err := s.Last(ctx, Minute)
	if err != nil || last.IsZero() || now.Sub(last) > staleAfter {
		return nil, err
	}
	to := last.Add(time.Minute).UTC()
	from := later(to.Add(-workTime), since.UTC().Truncate(time.Minute))
	first, err := s.instant(ctx, nextRowSQL, Minute.seconds(), from)
	if err != nil {
		return nil, fmt.Errorf("read the first minute of the records: %w", err)
	}
	if first.IsZero() {
		return nil, nil //nolint:nilnil // nothing is known
	}
	work := &Work{From: later(from, first.UTC()), To: to}
	points, err := s.SharePoints(ctx, ShareQuery{Dimension: dimension, Step: Minute, From: work.From, To: to}, time.Minute, []string{key})
	if err != nil {
		return nil, err
	}
	if !work.add(points, key) {
		return nil, nil //nolint:nilnil // nothing is known
	}
	return work, nil
}

// add adds up the points of a key, each of a minute. It returns false if the attempts of no
// minute are known.
func (w *Work) add(points []SharePoint, key string) bool {
	var sum Share
	kept, folded := map[time.Time]bool{}, map[time.Time]bool{}
	for _, p := range points {
		if p.Key != key {
			folded[p.At] = p.Folded
			continue
		}
		kept[p.At] = true
		sum.Attempts, sum.Failures = sum.Attempts+p.Attempts, sum.Failures+p.Failures
		sum.Wait, sum.Took = sum.Wait.Plus(p.Wait), sum.Took.Plus(p.Took)
	}
	for at, others := range folded {
		if others && !kept[at] {
			w.Unknown++
		}
	}
	minutes := float64(w.Minutes() - w.Unknown)
	if minutes <= 0 {
		return false
	}
	w.Finished, w.Failed = float64(sum.Attempts)/minutes, float64(sum.Failures)/minutes
	if sum.Wait != nil {
		w.Started = sum.Wait.Count() / minutes // each start has a wait
	}
	w.Wait, w.Took = PercentilesOf(sum.Wait), PercentilesOf(sum.Took)
	return true
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
