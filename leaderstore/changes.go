package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

const listenSQL = `SELECT current_schema()`

// pooledPollInterval is how often Changes polls behind a pooler, where it receives no
// notifications.
const pooledPollInterval = 100 * time.Millisecond

// Changes waits for changes of leadership.
type Changes struct{ conn *pgx.Conn } // conn is nil if there are no notifications

// Follow takes a connection out of the pool and listens on it. Behind a pooler it does not
// listen, because in transaction mode another client may use the session next.
func Follow(ctx context.Context, pool *pgxpool.Pool) (*Changes, error) {
	lent, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("follow the leadership: %w", err)
	}
	direct, err := postgres.Direct(ctx, lent.Conn())
	if err != nil || !direct {
		lent.Release()
		return &Changes{}, err
	}
	c := &Changes{conn: lent.Hijack()}
	var schema string
	err = c.conn.QueryRow(ctx, listenSQL).Scan(&schema)
	if err == nil {
		channel := wire.Channel(schema, wire.LeaderChannel)
		_, err = c.conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize())
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "25006" { // a replica does not support LISTEN
		c.Close()
		return &Changes{}, nil
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("follow the leadership: %w", err)
	}
	return c, nil
}

// Wait returns after a change, and after timeout at the latest. It fails if ctx ends or the
// connection breaks.
func (c *Changes) Wait(ctx context.Context, timeout time.Duration) error {
	if c.conn == nil {
		waiting, cancel := context.WithTimeout(ctx, min(timeout, pooledPollInterval))
		defer cancel()
		<-waiting.Done()
		return ctx.Err()
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := c.conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case waiting.Err() != nil && !c.conn.IsClosed():
		return nil
	}
	return fmt.Errorf("follow the leadership: %w", err)
}

// Close ends the connection.
func (c *Changes) Close() {
	if c.conn != nil {
		postgres.CloseNow(c.conn)
	}
}
