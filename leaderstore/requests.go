package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/dbpool"
	"github.com/forge-scheduler/forge/internal/wire"
)

// ErrTermOver says that the term that should be handed over has ended already.
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

// Execer is what requests are written through: a pool, a connection or a
// transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Request asks the leader of a term to stop its work and hand the role over: to
// the node target, which gets the first try, or to any other when target is
// empty. ErrTermOver means that there is nothing to hand over any more.
func Request(ctx context.Context, db Execer, role string, term int64, target string) error {
	tag, err := db.Exec(ctx, requestSQL, role, term, target, wire.LeaderChannel)
	if err != nil {
		return fmt.Errorf("ask for a hand-over of %s: %w", role, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("ask for a hand-over of %s: term %d: %w", role, term, ErrTermOver)
	}
	return nil
}

// Withdraw takes a request back that the leader has not acted upon.
func Withdraw(ctx context.Context, db Execer, role string, term int64) error {
	if _, err := db.Exec(ctx, withdrawSQL, role, term); err != nil {
		return fmt.Errorf("withdraw the hand-over of %s: %w", role, err)
	}
	return nil
}

// unheard is how often to look for a change where notifications may not be heard:
// through a pooler.
const unheard = 100 * time.Millisecond

// Changes tells when the leadership of some role changes.
type Changes struct{ conn *pgx.Conn } // nil where nothing is heard

// Follow takes a connection from the pool for itself and listens on it. Through a
// pooler it does not: in transaction mode the session is somebody else's next.
func Follow(ctx context.Context, pool *pgxpool.Pool) (*Changes, error) {
	lent, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("follow the leadership: %w", err)
	}
	direct, err := dbpool.Direct(ctx, lent.Conn())
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
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "25006" { // on a replica nobody can listen
		c.Close()
		return &Changes{}, nil
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("follow the leadership: %w", err)
	}
	return c, nil
}

// Wait returns after a change, and after atMost in any case. It fails when ctx
// ends or the connection breaks.
func (c *Changes) Wait(ctx context.Context, atMost time.Duration) error {
	if c.conn == nil {
		waiting, cancel := context.WithTimeout(ctx, min(atMost, unheard))
		defer cancel()
		<-waiting.Done()
		return ctx.Err()
	}
	waiting, cancel := context.WithTimeout(ctx, atMost)
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
