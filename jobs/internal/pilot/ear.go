package pilot

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/hearing"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	retryInterval = 200 * time.Millisecond
	// readTimeout bounds one look at what was missed.
	readTimeout = 5 * time.Second
)

// Listen hears the leader's offers and River's control messages until ctx ends.
// It outlives lost connections. River would listen only while its client runs,
// and with a backoff that grows over the life of the client; a node that hears
// no offers for minutes after a restart of the database is too slow.
func (p *Pilot) Listen(ctx context.Context) {
	if p.poll == 0 {
		p.listen(ctx)
		return
	}
	for lost := false; ctx.Err() == nil; {
		connected, err := p.pollOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if !lost || connected {
			p.logger.WarnContext(ctx, "mailbox for offers lost", "error", err)
		}
		lost = true
		progress.Sleep(ctx, retryInterval)
	}
}

func (p *Pilot) listen(ctx context.Context) {
	heard := p.hub.Open(p.offers, p.control)
	defer heard.Close()
	for {
		note, err := heard.WaitForNotification(ctx)
		switch {
		case errors.Is(err, hearing.ErrInterrupted):
			p.catchUp(ctx)
		case err != nil:
			return
		default:
			p.take(note)
		}
	}
}

// catchUp sees to what may have passed unheard: offers, and while River's client
// runs also cancellations, and queues that were paused or go on. Whatever comes
// meanwhile is taken afterwards, for it is newer.
func (p *Pilot) catchUp(ctx context.Context) {
	p.box.ask()
	for failing := false; p.tap.isOpen(); {
		err := p.readControl(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !failing {
			p.logger.WarnContext(ctx, "control messages that may have been missed cannot be read yet", "error", err)
		}
		failing = true
		progress.Sleep(ctx, retryInterval)
	}
}

func (p *Pilot) take(note *pgconn.Notification) {
	if note.Channel == p.control {
		p.tap.push(wire.RiverControlChannel, note.Payload)
		return
	}
	offer, err := wire.Unmarshal[wire.Offer](note.Payload)
	if err != nil {
		p.logger.Warn("unreadable offer ignored", "error", err)
		return
	}
	wake, dropped := p.box.put(offer, time.Now())
	p.refused.Add(float64(dropped))
	p.wake(wake)
}
