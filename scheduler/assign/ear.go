package assign

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/mailbox"
	"github.com/forge-scheduler/forge/internal/wire"
)

// ear is where the loop hears of credit and of whatever calls for a turn: the
// node's hub, or the mailbox behind a pooler that lets no notification through.
type ear interface {
	WaitForNotification(ctx context.Context) (*pgconn.Notification, error)
}

// openEar begins to listen, or to poll. Polling hears of credit only; each look
// stands for everything else that may have happened.
func (l *loop) openEar(ctx context.Context) (shut func(), err error) {
	if l.poll == 0 {
		heard := l.hub.Open(l.channels()...)
		l.ear = heard
		if err := l.within(ctx, heard.Await); err != nil {
			heard.Close()
			return nil, fmt.Errorf("listen for jobs and credit: %w", err)
		}
		return heard.Close, nil
	}
	l.ear = &mailbox.Poll{
		DB: l.pool, Channel: wire.Channel(l.schema, wire.CreditChannel), Every: l.poll,
		Tick: wire.Channel(l.schema, wire.NodeChannel),
	}
	return func() {}, nil
}

func (l *loop) channels() []string {
	var channels []string
	for _, name := range []string{wire.RiverInsertChannel, wire.RiverControlChannel, wire.CreditChannel, wire.NodeChannel, wire.CronChannel} {
		channels = append(channels, wire.Channel(l.schema, name))
	}
	return channels
}

// send tells every node of its offers, by whichever way it hears of them.
func (l *loop) send(ctx context.Context, letters []letter) error {
	if l.poll == 0 {
		return send(ctx, l.pool, l.fence, l.schema, letters)
	}
	channels, payloads := make([]string, len(letters)), make([]string, len(letters))
	for i, letter := range letters {
		channels[i], payloads[i] = wire.OfferChannel(l.schema, letter.to.incarnation), wire.Marshal(letter.offer)
	}
	current, err := mailbox.SendInTerm(ctx, l.pool, l.fence.Role, l.fence.Term, l.fence.Incarnation, channels, payloads)
	if err == nil && !current {
		err = l.fence.Deposed()
	}
	if err != nil {
		return fmt.Errorf("offer jobs: %w", err)
	}
	return nil
}

// patience is how long an offered job may stay unclaimed: where offers are polled for,
// or where the database takes long, they are claimed later. To offer them again would
// make a slow one slower.
func (l *loop) patience() time.Duration { return l.offerTimeout + 3*l.poll + offerShare*l.sweepTook }
