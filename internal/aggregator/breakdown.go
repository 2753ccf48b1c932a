package aggregator

import (
	"cmp"
	"context"
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
// finest first. The windows of a finer one may be deleted already.
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

// Breakdown returns at most some keys of a time in an order of BreakdownOrders.
func (s *Store) Breakdown(ctx context.Context, by string, from, to time.Time, keys int, order string) (Breakdown, error) {
	steps := stepsFor(to.Sub(from))
	b := Breakdown{By: by, From: from, To: to, Step: steps[0].String(), Items: []BreakdownItem{}}
	for _, step := range steps {
		shares, err := s.Shares(ctx, ShareQuery{Dimension: by, Step: step, From: step.Start(from), To: to}, keys)
		if err != nil {
			return b, err
		}
		if len(shares) == 0 {
			continue
		}
		b.Step = step.String()
		for _, share := range shares {
			b.Items = append(b.Items, BreakdownItem{share.Key, share.Attempts, share.Failures, PercentilesOf(share.Wait), PercentilesOf(share.Took)})
		}
		break
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
