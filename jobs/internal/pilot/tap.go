package pilot

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/riverqueue/river/riverdriver"

	"github.com/forge-scheduler/forge/internal/wire"
)

// tap is River's listener without a connection of its own. What the ear heard
// comes out of it: control messages as they are, offers as the insert
// notification that wakes a producer. River's real ones would only cause
// fetches that find an empty box.
type tap struct {
	schema string
	news   chan struct{} // room for one: something is pending

	mu      sync.Mutex
	open    bool
	pending []*riverdriver.Notification
}

var _ riverdriver.Listener = (*tap)(nil)

func newTap(schema string) *tap { return &tap{schema: schema, news: make(chan struct{}, 1)} }

// push has no effect while River does not listen: a producer looks into the box
// when it starts, and reads then whether its queue is paused.
func (t *tap) push(topic, payload string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return
	}
	t.pending = append(t.pending, &riverdriver.Notification{Topic: topic, Payload: payload})
	select {
	case t.news <- struct{}{}:
	default:
	}
}

type wakePayload struct {
	Queue string `json:"queue"`
}

// wake makes the queue's producer look into the box.
func (t *tap) wake(queue string) {
	payload, _ := json.Marshal(wakePayload{Queue: queue}) // a string always marshals
	t.push(wire.RiverInsertChannel, string(payload))
}

// WaitForNotification is part of riverdriver.Listener.
func (t *tap) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	for {
		if first := t.next(); first != nil {
			return first, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.news:
		}
	}
}

func (t *tap) next() *riverdriver.Notification {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) == 0 {
		return nil
	}
	first := t.pending[0]
	t.pending = t.pending[1:]
	return first
}

// Connect is part of riverdriver.Listener.
func (t *tap) Connect(context.Context) error { return t.set(true) }

// Close is part of riverdriver.Listener.
func (t *tap) Close(context.Context) error { return t.set(false) }

func (t *tap) isOpen() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}

func (t *tap) set(open bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open, t.pending = open, nil
	return nil
}

// Listen, Unlisten and Ping are part of riverdriver.Listener; the ear sees to
// what they are for.
func (t *tap) Listen(context.Context, string) error { return nil }

// Unlisten is like Listen.
func (t *tap) Unlisten(context.Context, string) error { return nil }

// Ping is like Listen.
func (t *tap) Ping(context.Context) error { return nil }

// Schema is part of riverdriver.Listener.
func (t *tap) Schema() string { return t.schema }

// SetAfterConnectExec is for River's own tests.
func (t *tap) SetAfterConnectExec(string) {}
