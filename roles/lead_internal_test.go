package roles

import (
	"testing"
	"time"
)

// A process that stood still does not lead when it wakes, even if the timer that ends
// the trust has not run yet.
func TestLeadIsOverByTheClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := &lead{ended: make(chan struct{}), settled: true, trustUntil: now}
	if !l.leads(now.Add(-1)) || l.leads(now) {
		t.Error("want a lead until the trust window ends, and none from then on")
	}
}
