package auth

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxThrottled bounds the callers that are counted separately.
const maxThrottled = 4096

// throttle limits the rate of an action for each of many callers.
type throttle struct {
	every rate.Limit
	burst int

	mu   sync.Mutex
	each map[string]*rate.Limiter
}

func newThrottle(every rate.Limit, burst int) *throttle {
	return &throttle{every: every, burst: burst, each: map[string]*rate.Limiter{}}
}

// take returns 0 if the caller may proceed, and otherwise how long it must wait.
func (t *throttle) take(who string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	limiter := t.each[who]
	if limiter == nil {
		t.makeRoom(now)
		limiter = rate.NewLimiter(t.every, t.burst)
		t.each[who] = limiter
	}
	reservation := limiter.ReserveN(now, 1)
	if wait := reservation.DelayFrom(now); wait > 0 {
		reservation.CancelAt(now)
		return wait
	}
	return 0
}

// wait returns the same as take without counting the call.
func (t *throttle) wait(who string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	limiter := t.each[who]
	if limiter == nil {
		return 0
	}
	missing := 1 - limiter.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(t.every) * float64(time.Second))
}

// makeRoom removes callers that were idle for a while. If the table is still full, it
// removes all: a caller that fills the table has many addresses, so a limit per address
// does not stop it anyway.
func (t *throttle) makeRoom(now time.Time) {
	if len(t.each) < maxThrottled {
		return
	}
	for who, limiter := range t.each {
		if limiter.TokensAt(now) >= float64(t.burst) {
			delete(t.each, who)
		}
	}
	if len(t.each) >= maxThrottled {
		clear(t.each)
	}
}
