package forge

import (
	"context"
	"sync"
	"time"
)

// changes tells open pages at once that something changed; what changes without
// notice they find by themselves.
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
		select {
		case subscriber <- struct{}{}:
		default: // has not yet looked after the last one
		}
	}
}

// Subscribe returns a channel that receives after one change or many.
func (c *changes) Subscribe() (<-chan struct{}, func()) {
	subscriber := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers[subscriber] = struct{}{}
	return subscriber, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subscribers, subscriber)
	}
}

// waiter waits for changes of leadership as a subscription tells of them.
type waiter <-chan struct{}

func (w waiter) Wait(ctx context.Context, atMost time.Duration) error {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w:
	case <-timer.C:
	}
	return nil
}
