package pilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/riverqueue/river/riverdriver"

	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	reconnectInterval = 200 * time.Millisecond
	connectTimeout    = 5 * time.Second
)

// tap is River's listener with the offers' channel beside River's own. An offer
// goes to the box and comes out as the insert notification that wakes a
// producer; River's real ones are swallowed, for they would only cause fetches
// that find an empty box.
type tap struct {
	riverdriver.Listener
	pilot *Pilot
	topic string

	mu         sync.Mutex
	pending    []*riverdriver.Notification
	topics     map[string]bool    // River's
	broken     bool               // there is no connection, reconnect is called for
	cancelWait context.CancelFunc // set while the inner listener waits
}

// Connect also listens for offers and asks for a report: offers may have passed
// unheard before it.
func (t *tap) Connect(ctx context.Context) error {
	if err := t.Listener.Connect(ctx); err != nil {
		return err
	}
	if err := t.Listener.Listen(ctx, t.topic); err != nil {
		_ = t.Listener.Close(ctx)
		return fmt.Errorf("listen for offers: %w", err)
	}
	t.pilot.box.ask()
	return nil
}

// Close is River's end of the connection.
func (t *tap) Close(ctx context.Context) error {
	t.mu.Lock()
	t.broken = false
	clear(t.topics) // River listens anew after it connects
	t.mu.Unlock()
	return t.Listener.Close(ctx)
}

// Listen remembers the topic for a new connection.
func (t *tap) Listen(ctx context.Context, topic string) error {
	if t.note(topic, true) {
		return nil
	}
	return t.Listener.Listen(ctx, topic)
}

// Unlisten forgets the topic.
func (t *tap) Unlisten(ctx context.Context, topic string) error {
	if t.note(topic, false) {
		return nil
	}
	return t.Listener.Unlisten(ctx, topic)
}

// note keeps the topics and says whether there is no connection to tell.
func (t *tap) note(topic string, listen bool) (broken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if listen {
		t.topics[topic] = true
	} else {
		delete(t.topics, topic)
	}
	return t.broken
}

// Ping finds a dead connection, and replaces it.
func (t *tap) Ping(ctx context.Context) error {
	if !t.isBroken() {
		err := t.Listener.Ping(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		t.pilot.logger.WarnContext(ctx, "connection for offers lost", "error", err)
	}
	return t.reconnect(ctx)
}

// reconnect tries until it has a connection again or ctx ends. River would do
// it too, with a backoff that grows over the life of the client; a node that
// hears no offers for minutes after a restart of the database is too slow.
func (t *tap) reconnect(ctx context.Context) error {
	t.mu.Lock()
	t.broken = true
	topics := slices.Collect(maps.Keys(t.topics))
	t.mu.Unlock()
	for {
		if err := t.replace(ctx, topics); err == nil {
			break
		}
		if !sleep(ctx, reconnectInterval) {
			return ctx.Err()
		}
	}
	t.mu.Lock()
	t.broken = false
	t.mu.Unlock()
	return nil
}

func (t *tap) replace(ctx context.Context, topics []string) error {
	_ = t.Listener.Close(ctx) // it is dead
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := t.Connect(ctx); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := t.Listener.Listen(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

func (t *tap) isBroken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

// WaitForNotification returns River's own notifications and the wakes; it
// outlives a lost connection.
func (t *tap) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	for {
		if wake := t.nextWake(); wake != nil {
			return wake, nil
		}
		if t.isBroken() {
			if err := t.reconnect(ctx); err != nil {
				return nil, err
			}
		}
		notification, err := t.listen(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, err
		case errors.Is(err, context.Canceled):
			// Interrupted for a wake.
		case err != nil:
			t.pilot.logger.WarnContext(ctx, "connection for offers lost", "error", err)
			if err := t.reconnect(ctx); err != nil {
				return nil, err
			}
		case notification.Topic == wire.RiverInsertChannel:
			// Somebody inserted a job; the leader hears it too.
		case notification.Topic == t.topic:
			t.offer(notification.Payload)
		default:
			return notification, nil
		}
	}
}

func (t *tap) nextWake() *riverdriver.Notification {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) == 0 {
		return nil
	}
	first := t.pending[0]
	t.pending = t.pending[1:]
	return first
}

// listen waits on the connection until a notification comes or wake interrupts.
func (t *tap) listen(ctx context.Context) (*riverdriver.Notification, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.setCancelWait(cancel)
	defer t.setCancelWait(nil)
	if t.hasPending() { // it came before there was anything to interrupt
		return nil, context.Canceled
	}
	return t.Listener.WaitForNotification(ctx)
}

func (t *tap) setCancelWait(cancel context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cancelWait = cancel
}

func (t *tap) hasPending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending) > 0
}

func (t *tap) offer(payload string) {
	offer, err := wire.Unmarshal[wire.Offer](payload)
	if err != nil {
		t.pilot.logger.Warn("unreadable offer ignored", "error", err)
		return
	}
	wake, dropped := t.pilot.box.put(offer, time.Now())
	t.pilot.refused.Add(float64(dropped))
	t.wake(wake)
}

// wake makes the producers of the queues look into the box.
func (t *tap) wake(queues []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, queue := range queues {
		t.pending = append(t.pending, wakeNotification(queue))
	}
	if t.cancelWait != nil {
		t.cancelWait()
	}
}

type wakePayload struct {
	Queue string `json:"queue"`
}

func wakeNotification(queue string) *riverdriver.Notification {
	payload, _ := json.Marshal(wakePayload{Queue: queue}) // a string always marshals
	return &riverdriver.Notification{Topic: wire.RiverInsertChannel, Payload: string(payload)}
}
