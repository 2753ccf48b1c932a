package alerts

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/wire"
)

// listenForRows signals news whenever a row may have been added. It returns when ctx ends.
func (c *Dispatcher) listenForRows(ctx context.Context, news chan<- struct{}) {
	channel := wire.Channel(c.options.Schema, wire.FailureChannel)
	stop := c.options.Notifier.Subscribe([]string{channel}, func(*pgconn.Notification) { signal(news) })
	defer stop()
	<-ctx.Done()
}

func signal(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default: // one is pending already
	}
}
