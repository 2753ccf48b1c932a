package alerts

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/wire"
)

// listenForRows signals news whenever a row was added, after each interruption of the
// connection, when notifications may have been lost, and periodically where no
// notifications arrive. It returns when ctx ends.
func (c *Dispatcher) listenForRows(ctx context.Context, news chan<- struct{}) {
	if c.options.PollInterval > 0 {
		pollNews(ctx, news, c.options.PollInterval)
		return
	}
	channel := wire.Channel(c.options.Schema, wire.FailureChannel)
	stop := c.options.Notifier.Subscribe([]string{channel}, func(*pgconn.Notification) { signal(news) })
	defer stop()
	<-ctx.Done()
}

// pollNews signals news periodically.
func pollNews(ctx context.Context, news chan<- struct{}, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		signal(news)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func signal(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default: // one is pending already
	}
}
