package forge

import (
	"sync"
)

// broadcaster notifies open pages of changes. Pages poll for changes without a
// notification.
type broadcaster struct {
	mu          sync.Mutex
	subscribers map[chan struct{}]struct{}
}

func newBroadcaster() *broadcaster { return &broadcaster{subscribers: map[chan struct{}]struct{}{}} }

// broadcast wakes every subscriber. It never blocks.
func (b *broadcaster) broadcast() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for subscriber := range b.subscribers {
		select {
		case subscriber <- struct{}{}:
		default: // a notification is already pending
		}
	}
}

// Subscribe returns a channel that receives once after one or more changes, and a function
// that ends the subscription.
func (b *broadcaster) Subscribe() (<-chan struct{}, func()) {
	subscriber := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers[subscriber] = struct{}{}
	return subscriber, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subscribers, subscriber)
	}
}
