package assign

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// notificationSource is the source of credit and other notifications: the node's
// notifier, or the message table behind a pooler that does not support LISTEN.
type notificationSource interface {
	WaitForNotification(ctx context.Context) (*pgconn.Notification, error)
}

// listen starts to listen or to poll. Polling returns only credit. Each poll counts as a
// notification of anything else that may have happened.
func (l *loop) listen(ctx context.Context) (stop func(), err error) {
	if l.pollInterval == 0 {
		subscription := l.notifier.Listen(l.channels()...)
		l.notifications = subscription
		if err := l.within(ctx, subscription.AwaitListening); err != nil {
			subscription.Close()
			return nil, fmt.Errorf("listen for jobs and credit: %w", err)
		}
		return subscription.Close, nil
	}
	l.notifications = &postgres.PollListener{
		DB: l.pool, Channel: wire.Channel(l.schema, wire.CreditChannel), PollInterval: l.pollInterval,
		TickChannel: wire.Channel(l.schema, wire.NodeChannel),
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

// send sends the offers to the nodes, as notifications or as messages.
func (l *loop) send(ctx context.Context, offers []addressedOffer) error {
	if l.pollInterval == 0 {
		return send(ctx, l.pool, l.fence, l.schema, offers)
	}
	channels, payloads := make([]string, len(offers)), make([]string, len(offers))
	for i, addressed := range offers {
		channels[i], payloads[i] = wire.OfferChannel(l.schema, addressed.to.incarnation), wire.Marshal(addressed.offer)
	}
	current, err := postgres.SendMessageInTerm(ctx, l.pool, l.fence.Role, l.fence.Term, l.fence.Incarnation, channels, payloads)
	if err == nil && !current {
		err = l.fence.Deposed()
	}
	if err != nil {
		return fmt.Errorf("offer jobs: %w", err)
	}
	return nil
}

// claimTimeout is how long an offered job may stay unclaimed. It is longer if nodes poll
// for offers or if the database is slow: a second offer would make a slow database
// slower.
func (l *loop) claimTimeout() time.Duration {
	return l.offerTimeout + 3*l.pollInterval + offerShare*l.sweepTook
}
