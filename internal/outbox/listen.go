package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/wire"
)

// listen signals news whenever a row was added, after each interruption, when it
// may have missed one, and where nothing is heard now and then. It returns when ctx
// ends.
func (c *Courier) listen(ctx context.Context, news chan<- struct{}) {
	if c.options.Poll > 0 {
		look(ctx, news, c.options.Poll)
		return
	}
	channel := wire.Channel(c.options.Schema, wire.FailureChannel)
	stop := c.options.Hub.Subscribe([]string{channel}, func(*pgconn.Notification) { signal(news) })
	defer stop()
	<-ctx.Done()
}

// look stands for news now and then.
func look(ctx context.Context, news chan<- struct{}, every time.Duration) {
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
