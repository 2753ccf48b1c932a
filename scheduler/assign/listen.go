package assign

import (
	"context"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/wire"
)

// listen starts to listen for notifications.
func (l *loop) listen(ctx context.Context) (stop func(), err error) {
	l.subscription = l.notifier.Listen(l.channels()...)
	if err := l.within(ctx, l.subscription.AwaitListening); err != nil {
		l.subscription.Close()
		return nil, fmt.Errorf("listen for jobs and credit: %w", err)
	}
	return l.subscription.Close, nil
}

func (l *loop) channels() []string {
	var channels []string
	for _, name := range []string{wire.RiverInsertChannel, wire.RiverControlChannel, wire.CreditChannel, wire.NodeChannel, wire.CronChannel} {
		channels = append(channels, wire.Channel(l.schema, name))
	}
	return channels
}

// send notifies every node of its offers in one round trip. If the term is over, it sends
// nothing and returns leaderstore.ErrDeposed. The condition is that of the fence, without
// its lock: an offer writes nothing, and the claim checks the term again.
func (l *loop) send(ctx context.Context, offers []addressedOffer) error {
	channels, payloads := make([]string, len(offers)), make([]string, len(offers))
	for i, o := range offers {
		channels[i], payloads[i] = wire.OfferChannel(l.schema, o.to.incarnation), wire.Marshal(o.offer)
	}
	current, err := l.notifier.NotifyInTerm(ctx, l.fence.Role, l.fence.Term, l.fence.Incarnation, channels, payloads)
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
	return l.offerTimeout + 3*l.delay + offerShare*l.sweepTook
}
