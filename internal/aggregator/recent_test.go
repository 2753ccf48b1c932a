package aggregator

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// Totals that were only written when they changed, and once a minute, are read as
// they were summed.
func TestFillInRestoresTotals(t *testing.T) {
	t.Parallel()
	const interval = 15 * time.Second
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		var instants []time.Time
		var points []Point
		var want []Totals
		var written sums
		var full time.Time
		since := begin.Add(2 * time.Minute)
		for i := range 40 {
			at := begin.Add(time.Duration(i) * interval)
			total := sums{}
			for _, kind := range []string{"a", "b"} {
				total.add(gauge(float64(rapid.IntRange(0, 2).Draw(t, "level")), "kind", kind))
			}
			changed := changes(written, total)
			if at.Sub(full) >= fullInterval {
				maps.Copy(changed, total)
				full = at
			}
			for _, s := range changed.ordered() {
				points = append(points, Point{Sample: s, At: at})
			}
			if len(changed) > 0 {
				instants = append(instants, at)
				if !at.Before(since) {
					want = append(want, Totals{At: at, Samples: total.ordered()})
				}
			}
			written = total
		}
		got := fillIn(instants, points, since, holds(interval))
		for _, totals := range got {
			slices.SortFunc(totals.Samples, compareKeys)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-summed +filled in):\n%s", diff)
		}
	})
}

func compareKeys(a, b metrics.Sample) int {
	if seriesKey(a) < seriesKey(b) {
		return -1
	}
	return 1
}
