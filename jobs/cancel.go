package jobs

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// canceller ends a statement whose context has ended by a cancel request, as
// pgconn's own handler does, but never abandons a request halfway: PgBouncer 1.18
// and 1.19 end themselves, and everybody's connections, when that happens.
type canceller struct {
	conn *pgconn.PgConn
	// patience is how long the server has to answer before the connection is cut.
	patience time.Duration
	sent     chan struct{}
}

// HandleCancel implements ctxwatch.Handler.
func (c *canceller) HandleCancel(ended context.Context) {
	_ = c.conn.Conn().SetDeadline(time.Now().Add(c.patience)) // fails on a closed connection alone
	c.sent = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), c.patience)
	go func() {
		defer close(c.sent)
		defer cancel()
		_ = c.conn.CancelRequest(ctx) // the deadline stands behind it
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (c *canceller) HandleUnwatchAfterCancel() {
	<-c.sent
	_ = c.conn.Conn().SetDeadline(time.Time{}) // fails on a closed connection alone
}
