package pilot

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"

	"github.com/forge-scheduler/forge/internal/wire"
)

// Driver is River's for pgx with this package's pilot aboard and a tap on its
// listener.
type Driver struct {
	*riverpgxv5.Driver
	pilot *Pilot
}

var _ riverdriver.Driver[pgx.Tx] = (*Driver)(nil)

// River finds the pilot through an interface that it does not export; this is
// its copy.
var _ interface {
	PluginInit(archetype *baseservice.Archetype)
	PluginPilot() riverpilot.Pilot
} = (*Driver)(nil)

func newDriver(p *Pilot) *Driver {
	return &Driver{Driver: riverpgxv5.New(p.pool), pilot: p}
}

// PluginInit is part of River's plugin interface; there is nothing to do.
func (d *Driver) PluginInit(*baseservice.Archetype) {}

// PluginPilot hands the pilot to River.
func (d *Driver) PluginPilot() riverpilot.Pilot { return d.pilot }

// GetListener is called once per client that works jobs.
func (d *Driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	d.pilot.tap = &tap{
		Listener: d.Driver.GetListener(params),
		pilot:    d.pilot,
		// The inner listener puts the schema before it.
		topic: strings.TrimPrefix(wire.OfferChannel(params.Schema, d.pilot.incarnation), params.Schema+"."),
	}
	return d.pilot.tap
}

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
	cancelWait context.CancelFunc // set while the inner listener waits
}

// Connect also asks for a report: offers may have passed unheard before it.
func (t *tap) Connect(ctx context.Context) error {
	if err := t.Listener.Connect(ctx); err != nil {
		return err
	}
	if err := t.Listen(ctx, t.topic); err != nil {
		_ = t.Listener.Close(ctx)
		return fmt.Errorf("listen for offers: %w", err)
	}
	t.pilot.box.ask()
	return nil
}

func (t *tap) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	for {
		if wake := t.nextWake(); wake != nil {
			return wake, nil
		}
		notification, err := t.listen(ctx)
		switch {
		case err != nil && ctx.Err() == nil && t.hasPending():
			// Interrupted for a wake.
		case err != nil:
			return nil, err
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
