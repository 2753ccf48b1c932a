package leaderstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchSlice is how long one wait for another session's end lasts: under
// PostgreSQL's deadlock_timeout of a second, so that nothing is logged, and
// short enough not to hold back VACUUM.
const watchSlice = 900 * time.Millisecond

const awaitEndSQL = `SELECT forge_await_session_end($1, $2, $3)`

// Watch is a deputy's connection: it waits for the end of a leader's session,
// which the server knows at the instant at which the leader's process dies. It
// holds no lock afterwards and elects nobody. It is not safe for concurrent use.
type Watch struct{ conn *pgx.Conn }

// OpenWatch connects a deputy.
func OpenWatch(ctx context.Context, cfg SessionConfig) (*Watch, error) {
	conn, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the deputy's session: %w", err)
	}
	w := &Watch{conn: conn}
	if err := watchConnection(ctx, conn); err != nil {
		w.Close()
		return nil, fmt.Errorf("open the deputy's session: %w", err)
	}
	return w, nil
}

// AwaitEnd waits up to a slice for the session that holds the lock (class,
// object) and returns when it ended, by the database's clock; zero means that it
// lives. A session that had ended before the call seems to have ended now. Any
// error means that the connection must be closed.
func (w *Watch) AwaitEnd(ctx context.Context, class, object int32) (time.Time, error) {
	var ended *time.Time
	if err := w.conn.QueryRow(ctx, awaitEndSQL, class, object, watchSlice).Scan(&ended); err != nil {
		return time.Time{}, fmt.Errorf("wait for the leader's session to end: %w", err)
	}
	return orZero(ended), nil
}

// Close ends the connection.
func (w *Watch) Close() { closeNow(w.conn) }
