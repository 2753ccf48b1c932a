package crons

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// listener signals changes of crons.
type listener struct {
	notifier *postgres.Notifier
	pool     *pgxpool.Pool
	channel  string
	changes  chan<- struct{}
}

// run signals changes of the definitions until ctx ends. A notification without a change
// is ignored. If the definitions cannot be read, it signals a change, because the loop
// retries and logs failures.
func (l *listener) run(ctx context.Context) {
	subscription := l.notifier.Listen(l.channel)
	defer subscription.Close()
	for last := ""; ; {
		if _, err := subscription.WaitForNotification(ctx); err != nil && !errors.Is(err, postgres.ErrInterrupted) {
			return
		}
		edition, err := cronstore.New(l.pool).Edition(ctx)
		if err != nil || edition != last {
			l.signal()
		}
		last = edition
	}
}

func (l *listener) signal() {
	select {
	case l.changes <- struct{}{}:
	default: // a signal is already pending
	}
}
