package leaderstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchSlice is how long one wait for another session's end lasts: under
// PostgreSQL's deadlock_timeout of a second, so that nothing is logged, and
// so short that VACUUM and CREATE INDEX CONCURRENTLY, which wait for it, are held
// back by less than a second.
const watchSlice = 750 * time.Millisecond

// slices is how many of them one statement waits for, once the session was found to
// live: each statement wakes two processes.
const slices = 40

// deputyCheck is how often the server looks whether a waiting deputy still lives. It
// holds nothing that another could want, and each look wakes its process.
const deputyCheck = 2 * time.Second

const awaitEndSQL = `CALL forge_await_session_end($1, $2, $3, $4, NULL)`

// Watch is a deputy's connection: it waits for the end of a leader's session,
// which the server knows at the instant at which the leader's process dies. It
// holds no lock afterwards and elects nobody. It is not safe for concurrent use.
type Watch struct {
	conn *pgx.Conn
	// lives says that the last wait found the session alive.
	lives bool
}

// OpenWatch connects a deputy.
func OpenWatch(ctx context.Context, cfg SessionConfig) (*Watch, error) {
	conn, err := connect(ctx, cfg, func(*pgx.ConnConfig) {})
	if err != nil {
		return nil, fmt.Errorf("open the deputy's session: %w", err)
	}
	w := &Watch{conn: conn}
	if err := watchConnection(ctx, conn, deputyCheck); err != nil {
		w.Close()
		return nil, fmt.Errorf("open the deputy's session: %w", err)
	}
	return w, nil
}

// AwaitEnd waits for the session that holds the lock (class, object) to end, and
// returns when it did by the database's clock; zero means that it lives. The first
// wait is short: a session that had ended before seems to have ended now. Any error
// means that the connection must be closed.
func (w *Watch) AwaitEnd(ctx context.Context, class, object int32) (time.Time, error) {
	var ended *time.Time
	most := 1
	if w.lives {
		most = slices
	}
	if err := w.conn.QueryRow(ctx, awaitEndSQL, class, object, watchSlice, most).Scan(&ended); err != nil {
		return time.Time{}, fmt.Errorf("wait for the leader's session to end: %w", err)
	}
	w.lives = ended == nil
	return orZero(ended), nil
}

// Close ends the connection.
func (w *Watch) Close() { closeNow(w.conn) }
