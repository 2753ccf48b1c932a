package aggregator

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// Breakdown divides the attempts of a time by a dimension.
type Breakdown struct {
	// By is the dimension.
	By   string    `json:"by"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Step is the length of the windows that were added up.
	Step string `json:"step"`
	// Items are the keys with the most attempts, in the wanted order, and Other at last.
	Items []BreakdownItem `json:"items"`
}

// BreakdownItem holds the attempts of a cron, kind, node or queue.
type BreakdownItem struct {
	// Key is its name, or Other for all that are not named.
	Key string `json:"key"`
	// Attempts finished; Failures of them failed, exceeded their timeout or were lost with
	// their node.
	Attempts int64 `json:"attempts"`
	Failures int64 `json:"failures"`
	// Wait is how many seconds jobs waited from due to started, Took how many seconds attempts
	// ran.
	Wait Percentiles `json:"wait_seconds"`
	Took Percentiles `json:"took_seconds"`
}

// Percentiles are estimates from the buckets of a histogram. They are nil if it has no values.
type Percentiles struct {
	P50 *float64 `json:"p50,omitempty"`
	P95 *float64 `json:"p95,omitempty"`
	P99 *float64 `json:"p99,omitempty"`
}

// PercentilesOf returns the percentiles of a histogram, which may be nil.
func PercentilesOf(h *metrics.Histogram) Percentiles {
	of := func(q float64) *float64 {
		if v := h.Quantile(q); !math.IsNaN(v) {
			return &v
		}
		return nil
	}
	if h == nil {
		return Percentiles{}
	}
	return Percentiles{of(.50), of(.95), of(.99)}
}

// BreakdownOrders are the orders of a breakdown, the usual one first: most attempts, most
// failures, longest p99 of the wait or of the time taken, or by name.
var BreakdownOrders = []string{"attempts", "failures", "wait", "took", "key"}

// Keys of a breakdown: usual and most.
const (
	UsualKeys = 20
	MostKeys  = 100
)

// stepsFor returns the steps whose windows may cover a time of a width in few enough rows,
// finest first.
func stepsFor(width time.Duration) []Step {
	switch {
	case width <= 2*time.Hour:
		return Steps
	case width <= 48*time.Hour:
		return Steps[1:]
	default:
		return Steps[2:]
	}
}

const oldestShareSQL = `SELECT min(at) FROM forge_metrics_shares WHERE step = $1 AND dimension = $2`

// finest returns the first of some steps whose windows begin before an instant. If there is none,
// it returns the one with the oldest windows. Windows of finer steps are deleted sooner.
func (s *Store) finest(ctx context.Context, steps []Step, by string, before time.Time) (Step, error) {
	found, first := steps[0], time.Time{}
	for _, step := range steps {
		oldest, err := s.instant(ctx, oldestShareSQL, step.seconds(), by)
		if err != nil {
			return 0, fmt.Errorf("read the first window of %s: %w", step, err)
		}
		// The window of a longer step that contains the first window of a finer one is not older.
		if !oldest.IsZero() && (first.IsZero() || oldest.Before(step.Start(first))) {
			found, first = step, oldest
		}
		if !first.IsZero() && !first.After(before) {
			break
		}
	}
	return found, nil
}

// Breakdown returns at most some keys of a time in an order of BreakdownOrders.
func (s *Store) Breakdown(ctx context.Context, by string, from, to time.Time, keys int, order string) (Breakdown, error) {
	step, err := s.finest(ctx, stepsFor(to.Sub(from)), by, from)
	if err != nil {
		return Breakdown{}, err
	}
	b := Breakdown{By: by, From: from, To: to, Step: step.String(), Items: []BreakdownItem{}}
	shares, err := s.Shares(ctx, ShareQuery{Dimension: by, Step: step, From: step.Start(from), To: to}, keys)
	if err != nil {
		return b, err
	}
	for _, share := range shares {
		b.Items = append(b.Items, BreakdownItem{share.Key, share.Attempts, share.Failures, PercentilesOf(share.Wait), PercentilesOf(share.Took)})
	}
	return b.Sorted(order), nil
}

// Sorted returns the breakdown in an order of BreakdownOrders.
func (b Breakdown) Sorted(order string) Breakdown {
	b.Items = slices.Clone(b.Items)
	slices.SortStableFunc(b.Items, func(x, y BreakdownItem) int {
		if other := cmp.Compare(rank(x), rank(y)); other != 0 {
			return other
		}
		switch order {
		case "failures":
			return cmp.Compare(y.Failures, x.Failures)
		case "wait":
			return descending(x.Wait.P99, y.Wait.P99)
		case "took":
			return descending(x.Took.P99, y.Took.P99)
		case "key":
			return cmp.Compare(x.Key, y.Key)
		default:
			return cmp.Compare(y.Attempts, x.Attempts)
		}
	})
	return b
}

// rank puts Other at the end.
func rank(i BreakdownItem) int {
	if i.Key == Other {
		return 1
	}
	return 0
}

// descending puts unknown values at the end.
func descending(x, y *float64) int {
	value := func(v *float64) float64 {
		if v == nil {
			return -1
		}
		return *v
	}
	return cmp.Compare(value(y), value(x))
}
