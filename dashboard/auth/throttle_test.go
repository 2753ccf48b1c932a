package auth

import (
	"testing"
	"time"
)

func TestThrottleForgets(t *testing.T) {
	t.Parallel()
	limits := newThrottle(1, 1)
	for i := range 3 * maxThrottled {
		limits.take(time.Duration(i).String(), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	}
	if len(limits.each) > maxThrottled {
		t.Errorf("it remembers %d", len(limits.each))
	}
}
