package crons

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// pollRetryDelay is the delay after a failed check.
const pollRetryDelay = time.Second

// listener signals changes of crons.
type listener struct {
	notifier *postgres.Notifier
	pool     *pgxpool.Pool
	channel  string
	// pollInterval is the time between checks where LISTEN does not work; 0 means that it
	// works.
	pollInterval time.Duration
	changes      chan<- struct{}
	logger       *slog.Logger
}

// run signals possible changes, even after a lost connection. It returns when ctx ends.
func (l *listener) run(ctx context.Context) {
	if l.pollInterval == 0 {
		stop := l.notifier.Subscribe([]string{l.channel}, func(*pgconn.Notification) { l.signal() })
		defer stop()
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		err := l.pollChanges(ctx)
		if ctx.Err() != nil {
			return
		}
		l.logger.WarnContext(ctx, "checking for changed crons failed; retrying", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pollRetryDelay):
		}
	}
}

// pollChanges periodically compares the definitions with those of the previous check.
func (l *listener) pollChanges(ctx context.Context) error {
	tick := time.NewTicker(l.pollInterval)
	defer tick.Stop()
	for last := ""; ; {
		edition, err := cronstore.New(l.pool).Edition(ctx)
		if err != nil {
			return fmt.Errorf("check for changed crons: %w", err)
		}
		if edition != last {
			l.signal()
		}
		last = edition
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (l *listener) signal() {
	select {
	case l.changes <- struct{}{}:
	default: // a signal is already pending
	}
}
