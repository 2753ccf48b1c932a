package riveradapter

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	retryInterval = 200 * time.Millisecond
	// readTimeout is the time limit for reading missed messages.
	readTimeout = 5 * time.Second
)

// Listen receives the leader's offers and River's control messages until ctx ends. It
// reconnects after a lost connection. River would listen only while its client runs, with
// a backoff that grows over the lifetime of the client, so a node could miss offers for
// minutes after a restart of the database.
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
			p.logger.WarnContext(ctx, "reading offers from the message table failed; retrying", "error", err)
		}
		lost = true
		watchdog.Sleep(ctx, retryInterval)
	}
}

func (p *Pilot) listen(ctx context.Context) {
	subscription := p.notifier.Listen(p.offers, p.control)
	defer subscription.Close()
	for {
		note, err := subscription.WaitForNotification(ctx)
		switch {
		case errors.Is(err, postgres.ErrInterrupted):
			p.catchUp(ctx)
		case err != nil:
			return
		default:
			p.handleNotification(note)
		}
	}
}

// catchUp handles messages that may have been lost. It requests new offers. While River's
// client runs, it also reads cancellations and paused or resumed queues. Later
// notifications are handled after it, because they are newer.
func (p *Pilot) catchUp(ctx context.Context) {
	p.buffer.requestReport()
	for failing := false; p.listener.isOpen(); {
		err := p.readControl(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !failing {
			p.logger.WarnContext(ctx, "reading missed control messages failed; retrying", "error", err)
		}
		failing = true
		watchdog.Sleep(ctx, retryInterval)
	}
}

func (p *Pilot) handleNotification(note *pgconn.Notification) {
	if note.Channel == p.control {
		p.listener.push(wire.RiverControlChannel, note.Payload)
		return
	}
	offer, err := wire.Unmarshal[wire.Offer](note.Payload)
	if err != nil {
		p.logger.Warn("unreadable offer ignored", "error", err)
		return
	}
	wake, dropped := p.buffer.add(offer, time.Now())
	p.refused.Add(float64(dropped))
	p.wake(wake)
}
