package roles

import (
	"testing"
	"time"
)

// A process that was paused does not lead after the trust window, even if the trust timer
// has not fired yet.
func TestTermEndsByClockBeforeTimerFires(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := &term{ctx: t.Context(), trustUntil: now}
	l.takeoverDone.Store(true)
	if !l.leads(now.Add(-1)) || l.leads(now) {
		t.Error("want leads() to be true until the trust window ends, and false from then on")
	}
}
