package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// takeTimeout bounds one read of the message table.
const takeTimeout = 5 * time.Second

// PollListener waits for messages as a connection waits for notifications. It is
// not safe for concurrent use.
type PollListener struct {
	DB           MessageQueryer
	Channel      string
	PollInterval time.Duration
	// TickChannel is the channel of a notification without payload that the
	// listener returns after each read that found no message. It lets the caller
	// check state that nothing announces. Empty: no such notification.
	TickChannel string

	pending []*pgconn.Notification
	next    time.Time
}

// WaitForNotification returns the next message, or a tick. It fails when ctx ends
// or when the database fails, as the method of a connection does.
func (p *PollListener) WaitForNotification(ctx context.Context) (*pgconn.Notification, error) {
	for len(p.pending) == 0 {
		if err := wait(ctx, time.Until(p.next)); err != nil {
			return nil, err
		}
		if err := p.poll(ctx); err != nil {
			return nil, err
		}
	}
	first := p.pending[0]
	p.pending = p.pending[1:]
	return first, nil
}

// poll is not cancelled with ctx: that would close the connection, and a read is
// short.
func (p *PollListener) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeTimeout)
	defer cancel()
	payloads, err := TakeMessages(ctx, p.DB, p.Channel)
	if err != nil {
		return err
	}
	p.next = time.Now().Add(p.PollInterval)
	for _, payload := range payloads {
		p.next = time.Now().Add(min(busyInterval, p.PollInterval))
		p.pending = append(p.pending, &pgconn.Notification{Channel: p.Channel, Payload: payload})
	}
	if len(payloads) == 0 && p.TickChannel != "" {
		p.pending = append(p.pending, &pgconn.Notification{Channel: p.TickChannel})
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
