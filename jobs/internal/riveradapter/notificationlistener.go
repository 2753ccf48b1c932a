package riveradapter

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/riverqueue/river/riverdriver"

	"github.com/forge-scheduler/forge/internal/wire"
)

// notificationListener is River's listener without a connection of its own. It forwards
// what Listen receives: control messages unchanged, and offers as the insert notification
// that wakes a producer. River's own insert notifications would only cause fetches from
// an empty buffer.
type notificationListener struct {
	schema string
	news   chan struct{} // room for one: a notification is pending

	mu      sync.Mutex
	open    bool
	pending []*riverdriver.Notification
}

var _ riverdriver.Listener = (*notificationListener)(nil)

func newNotificationListener(schema string) *notificationListener {
	return &notificationListener{schema: schema, news: make(chan struct{}, 1)}
}

// push does nothing while River does not listen. When a producer starts, it reads the
// buffer and whether its queue is paused.
func (t *notificationListener) push(topic, payload string) {
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

// wake makes the queue's producer fetch.
func (t *notificationListener) wake(queue string) {
	payload, _ := json.Marshal(wakePayload{Queue: queue}) // marshalling a string cannot fail
	t.push(wire.RiverInsertChannel, string(payload))
}

// WaitForNotification implements riverdriver.Listener.
func (t *notificationListener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
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

func (t *notificationListener) next() *riverdriver.Notification {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) == 0 {
		return nil
	}
	first := t.pending[0]
	t.pending = t.pending[1:]
	return first
}

// Connect implements riverdriver.Listener.
func (t *notificationListener) Connect(context.Context) error { return t.set(true) }

// Close implements riverdriver.Listener.
func (t *notificationListener) Close(context.Context) error { return t.set(false) }

func (t *notificationListener) set(open bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open, t.pending = open, nil
	return nil
}

// Listen implements riverdriver.Listener. It does nothing, like Unlisten and Ping,
// because the Pilot's Listen has the connection.
func (t *notificationListener) Listen(context.Context, string) error { return nil }

// Unlisten does nothing.
func (t *notificationListener) Unlisten(context.Context, string) error { return nil }

// Ping does nothing.
func (t *notificationListener) Ping(context.Context) error { return nil }

// Schema implements riverdriver.Listener.
func (t *notificationListener) Schema() string { return t.schema }

// SetAfterConnectExec is used only by River's own tests.
func (t *notificationListener) SetAfterConnectExec(string) {}
