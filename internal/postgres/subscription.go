package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrInterrupted means that notifications may have been missed.
var ErrInterrupted = errors.New("the connection for notifications was interrupted")

// Changes returns a channel that receives once after one or more notifications of the
// channels, and after some may have been missed. It also returns a function that ends the
// subscription.
func (h *Notifier) Changes(channels ...string) (changes <-chan struct{}, unsubscribe func()) {
	changed := make(chan struct{}, 1)
	return changed, h.Subscribe(channels, func(*pgconn.Notification) {
		select {
		case changed <- struct{}{}:
		default: // one is pending already
		}
	})
}

// Subscription queues notifications for one reader.
type Subscription struct {
	stop  func()
	ready chan struct{} // capacity one: a notification is pending

	mu      sync.Mutex
	pending []*pgconn.Notification
}

// Listen subscribes to the channels. The first result is ErrInterrupted:
// notifications are received from then on.
func (h *Notifier) Listen(channels ...string) *Subscription {
	q := &Subscription{ready: make(chan struct{}, 1)}
	q.stop = h.Subscribe(channels, q.add)
	return q
}

// Close ends the subscription.
func (q *Subscription) Close() { q.stop() }

func (q *Subscription) add(note *pgconn.Notification) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, note)
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// WaitForNotification returns the next notification. It returns a pending
// notification even if ctx has ended. After ErrInterrupted the subscription remains
// usable.
func (q *Subscription) WaitForNotification(ctx context.Context) (*pgconn.Notification, error) {
	for {
		if note, found := q.next(); found && note == nil {
			return nil, ErrInterrupted
		} else if found {
			return note, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-q.ready:
		}
	}
}

func (q *Subscription) next() (note *pgconn.Notification, found bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) == 0 {
		return nil, false
	}
	note = q.pending[0]
	q.pending = q.pending[1:]
	return note, true
}

// AwaitListening reads until the subscription is active or ctx ends.
func (q *Subscription) AwaitListening(ctx context.Context) error {
	for {
		_, err := q.WaitForNotification(ctx)
		switch {
		case errors.Is(err, ErrInterrupted):
			return nil
		case err != nil:
			return err
		}
	}
}
