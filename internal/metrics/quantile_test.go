package metrics_test

import (
	"testing"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// A percentile above all bounds is at least the greatest of them.
func TestQuantileAboveAllBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		buckets map[string]float64
		want    float64
	}{
		"all values":              {map[string]float64{"+Inf": 40}, 300},
		"half of the values":      {map[string]float64{"1": 50, "+Inf": 50}, 300},
		"another version's bound": {map[string]float64{"900": 50, "+Inf": 50}, 900},
	} {
		h := &metrics.Histogram{Buckets: c.buckets}
		if got := h.Quantile(.95); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
