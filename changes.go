package forge

import (
	"sync"
	"time"
)

// beat is how often a subscriber looks even when nothing was announced: jobs
// change without notice.
const beat = time.Second

// changes tells open pages that something may have changed. Without a
// subscriber it does nothing at all.
type changes struct {
	mu          sync.Mutex
	subscribers map[chan struct{}]struct{}
}

func newChanges() *changes { return &changes{subscribers: map[chan struct{}]struct{}{}} }

// announce wakes every subscriber. It never blocks.
func (c *changes) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for subscriber := range c.subscribers {
		wake(subscriber)
	}
}

// Subscribe returns a channel that receives after changes, and each second.
func (c *changes) Subscribe() (<-chan struct{}, func()) {
	subscriber := make(chan struct{}, 1)
	done := make(chan struct{})
	c.mu.Lock()
	c.subscribers[subscriber] = struct{}{}
	c.mu.Unlock()
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				wake(subscriber)
			}
		}
	})
	return subscriber, sync.OnceFunc(func() {
		c.mu.Lock()
		delete(c.subscribers, subscriber)
		c.mu.Unlock()
		close(done)
		ticking.Wait()
	})
}

func wake(subscriber chan struct{}) {
	select {
	case subscriber <- struct{}{}:
	default:
	}
}
