package crons

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/hearing"
)

// lookAgain is how long to wait after a look that failed.
const lookAgain = time.Second

// listener hears of changes of crons.
type listener struct {
	hub     *hearing.Hub
	pool    *pgxpool.Pool
	channel string
	// poll is how often to look where notifications are not heard; 0: they are.
	poll    time.Duration
	changes chan<- struct{}
	logger  *slog.Logger
}

// run signals changes whenever there may be any, also after each interruption. It
// returns when ctx ends.
func (l *listener) run(ctx context.Context) {
	if l.poll == 0 {
		stop := l.hub.Subscribe([]string{l.channel}, func(*pgconn.Notification) { l.signal() })
		defer stop()
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		err := l.look(ctx)
		if ctx.Err() != nil {
			return
		}
		l.logger.WarnContext(ctx, "looking for changes of crons was interrupted", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(lookAgain):
		}
	}
}

// look compares the definitions with those of the last look, again and again.
func (l *listener) look(ctx context.Context) error {
	tick := time.NewTicker(l.poll)
	defer tick.Stop()
	for last := ""; ; {
		edition, err := cronstore.Edition(ctx, l.pool)
		if err != nil {
			return fmt.Errorf("look for changes: %w", err)
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
	default: // one is pending already
	}
}
