package auth

import (
	"context"
	"slices"
	"sync"
	"time"
)

// quota shares units among callers. It has a limit for all callers and one for each of
// them, so that no caller can take all units.
type quota struct {
	total, perCaller int
	// queue bounds the callers that wait.
	queue int

	mu      sync.Mutex
	Used    int
	of      map[string]int
	waiting []*quotaWaiter // in order of arrival
}

// quotaWaiter is a caller that waits for units.
type quotaWaiter struct {
	who     string
	n       int
	granted chan struct{}
}

func newQuota(total, perCaller, queue int) *quota {
	return &quota{total: total, perCaller: perCaller, queue: queue, of: map[string]int{}}
}

// Acquire takes n units for a caller. It waits until they are available, timeout has passed
// or ctx ends. It caps n at the limit of one caller. release gives the units back; it is
// nil if none were acquired.
func (q *quota) Acquire(ctx context.Context, who string, n int, timeout time.Duration) (release func()) {
	n = min(n, q.perCaller, q.total)
	q.mu.Lock()
	if q.take(who, n) {
		q.mu.Unlock()
		return q.releaser(who, n)
	}
	if timeout <= 0 || len(q.waiting) >= q.queue {
		q.mu.Unlock()
		return nil
	}
	w := &quotaWaiter{who, n, make(chan struct{})}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.granted:
		return q.releaser(who, n)
	case <-timer.C:
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-w.granted: // granted in the meantime
		return q.releaser(who, n)
	default:
		i := slices.Index(q.waiting, w)
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return nil
	}
}

// take takes units if they are available. The caller holds q.mu.
func (q *quota) take(who string, n int) bool {
	if q.Used+n > q.total || q.of[who]+n > q.perCaller {
		return false
	}
	q.Used += n
	q.of[who] += n
	return true
}

// releaser returns a function that gives the units back once.
func (q *quota) releaser(who string, n int) func() {
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.Used -= n
		if q.of[who] -= n; q.of[who] == 0 {
			delete(q.of, who)
		}
		q.waiting = slices.DeleteFunc(q.waiting, func(w *quotaWaiter) bool {
			granted := q.take(w.who, w.n)
			if granted {
				close(w.granted)
			}
			return granted
		})
	})
}
