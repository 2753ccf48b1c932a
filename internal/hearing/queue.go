package hearing

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrInterrupted says that notifications may have passed unheard.
var ErrInterrupted = errors.New("the connection for notifications was interrupted")

// Queue keeps what was heard for one reader, as a connection would that listens.
type Queue struct {
	stop func()
	news chan struct{} // room for one: something is pending

	mu      sync.Mutex
	pending []*pgconn.Notification
}

// Open subscribes a Queue to the channels. Its first answer is ErrInterrupted: it
// hears from then on.
func (h *Hub) Open(channels ...string) *Queue {
	q := &Queue{news: make(chan struct{}, 1)}
	q.stop = h.Subscribe(channels, q.put)
	return q
}

// Close ends the subscription.
func (q *Queue) Close() { q.stop() }

func (q *Queue) put(note *pgconn.Notification) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, note)
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// WaitForNotification returns the next notification: what has come already even
// when ctx has ended. After ErrInterrupted the queue may be used on.
func (q *Queue) WaitForNotification(ctx context.Context) (*pgconn.Notification, error) {
	for {
		if note, found := q.next(); found && note == nil {
			return nil, ErrInterrupted
		} else if found {
			return note, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-q.news:
		}
	}
}

func (q *Queue) next() (note *pgconn.Notification, found bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) == 0 {
		return nil, false
	}
	note = q.pending[0]
	q.pending = q.pending[1:]
	return note, true
}

// Await reads until the queue hears, or ctx ends.
func (q *Queue) Await(ctx context.Context) error {
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
