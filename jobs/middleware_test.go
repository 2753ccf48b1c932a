package jobs

import (
	"testing"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// An enqueue without tracing passes no middleware of tracing: its cost is none.
func TestInsertsWithoutTracerHaveNoMoreMiddleware(t *testing.T) {
	t.Parallel()
	options := Options{Metrics: metrics.New("test")}
	if got := len(options.insertMiddleware()); got != 2 { // counts, and reserved fields
		t.Errorf("an insert passes %d middleware, want 2", got)
	}
}
