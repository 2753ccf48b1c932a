package mailbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// takeTimeout bounds one look.
const takeTimeout = 5 * time.Second

// Poll waits for mail as a connection waits for notifications. It is not safe for
// concurrent use.
type Poll struct {
	DB      Queryer
	Channel string
	Every   time.Duration
	// Tick is the channel of a notification without payload that comes with each
	// look after a silence, for what nothing else tells; empty: none.
	Tick string

	pending []*pgconn.Notification
	next    time.Time
}

// WaitForNotification returns the next message, or a tick. Like a connection's it
// fails when ctx ends, and when the database does.
func (p *Poll) WaitForNotification(ctx context.Context) (*pgconn.Notification, error) {
	for len(p.pending) == 0 {
		if err := wait(ctx, time.Until(p.next)); err != nil {
			return nil, err
		}
		if err := p.look(ctx); err != nil {
			return nil, err
		}
	}
	first := p.pending[0]
	p.pending = p.pending[1:]
	return first, nil
}

// look is not ended with ctx: that would cost the connection, and a look is short.
func (p *Poll) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeTimeout)
	defer cancel()
	payloads, err := Take(ctx, p.DB, p.Channel)
	if err != nil {
		return err
	}
	p.next = time.Now().Add(p.Every)
	for _, payload := range payloads {
		p.next = time.Now().Add(min(quick, p.Every))
		p.pending = append(p.pending, &pgconn.Notification{Channel: p.Channel, Payload: payload})
	}
	if len(payloads) == 0 && p.Tick != "" {
		p.pending = append(p.pending, &pgconn.Notification{Channel: p.Tick})
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
