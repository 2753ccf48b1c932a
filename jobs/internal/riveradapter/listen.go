package riveradapter

import (
	"context"
	"errors"
	"time"

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
	subscription := p.notifier.Listen(p.offers, p.control)
	defer subscription.Close()
	for {
		note, err := subscription.WaitForNotification(ctx)
		switch {
		case errors.Is(err, postgres.ErrInterrupted):
			p.buffer.requestReport() // offers may have been lost
			p.sendControlState(ctx)
		case err != nil:
			return
		case note.Channel == p.offers:
			p.handleOffer(note.Payload)
		case note.Payload == "":
			p.sendControlState(ctx)
		default:
			p.handleControl(note.Payload)
		}
	}
}

// sendControlState reads cancellations and paused or resumed queues and handles them as
// messages; repeated messages have no effect. Later notifications are handled after it,
// because they are newer.
func (p *Pilot) sendControlState(ctx context.Context) {
	for failing := false; ; {
		err := p.readControl(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !failing {
			p.logger.WarnContext(ctx, "reading control messages failed; retrying", "error", err)
		}
		failing = true
		watchdog.Sleep(ctx, retryInterval)
	}
}

func (p *Pilot) handleOffer(payload string) {
	if payload == "" {
		return // no offer since the last poll
	}
	offer, err := wire.Unmarshal[wire.Offer](payload)
	if err != nil {
		p.logger.Warn("unreadable offer ignored", "error", err)
		return
	}
	p.refused.Add(float64(p.buffer.add(offer, time.Now())))
}
