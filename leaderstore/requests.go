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

// ErrTermOver means that the term to hand over has already ended.
var ErrTermOver = errors.New("the term is over")

const (
	requestSQL = `
WITH led AS (
    SELECT role, term FROM forge_leaders WHERE role = $1 AND term = $2 AND node_id IS NOT NULL
), asked AS (
    INSERT INTO forge_leader_requests (role, term, target)
    SELECT role, term, nullif($3, '') FROM led
    ON CONFLICT (role) DO UPDATE
    SET term = excluded.term, target = excluded.target, requested_at = clock_timestamp(), reserved_until = NULL
    RETURNING role
)
SELECT pg_notify(current_schema() || '.' || $4, role) FROM asked`

	withdrawSQL = `DELETE FROM forge_leader_requests WHERE role = $1 AND term = $2 AND reserved_until IS NULL`

	listenSQL = `SELECT current_schema()`
)

// Request requests that the leader of a term stops its work and hands the role over: to the
// node target, which gets the first try, or to any other node if target is empty.
// ErrTermOver means that the term has already ended.
func (s *Store) Request(ctx context.Context, role string, term int64, target string) error {
	tag, err := s.db.Exec(ctx, requestSQL, role, term, target, wire.LeaderChannel)
	if err != nil {
		return fmt.Errorf("request a hand-over of %s: %w", role, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("request a hand-over of %s: term %d: %w", role, term, ErrTermOver)
	}
	return nil
}

// Withdraw deletes a request on which the leader has not acted.
func (s *Store) Withdraw(ctx context.Context, role string, term int64) error {
	if _, err := s.db.Exec(ctx, withdrawSQL, role, term); err != nil {
		return fmt.Errorf("withdraw the hand-over of %s: %w", role, err)
	}
	return nil
}

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
		closeNow(c.conn)
	}
}
