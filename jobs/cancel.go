package jobs

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// canceller cancels a statement when its context ends, as pgconn's own handler does, but
// it never abandons a cancel request: PgBouncer 1.18 and 1.19 then crash and end all
// connections.
type canceller struct {
	conn *pgconn.PgConn
	// timeout is how long the server may take to answer before the connection is closed.
	timeout time.Duration
	sent    chan struct{}
}

// HandleCancel implements ctxwatch.Handler.
func (c *canceller) HandleCancel(ended context.Context) {
	_ = c.conn.Conn().SetDeadline(time.Now().Add(c.timeout)) // fails only on a closed connection
	c.sent = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), c.timeout)
	go func() {
		defer close(c.sent)
		defer cancel()
		_ = c.conn.CancelRequest(ctx) // the deadline applies if this fails
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (c *canceller) HandleUnwatchAfterCancel() {
	<-c.sent
	_ = c.conn.Conn().SetDeadline(time.Time{}) // fails only on a closed connection
}
