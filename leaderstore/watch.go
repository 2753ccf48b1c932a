package leaderstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// waitTimeout is how long one wait for the end of another session lasts. It is below
// PostgreSQL's deadlock_timeout of one second, so that nothing is logged, and it delays
// VACUUM and CREATE INDEX CONCURRENTLY, which wait for it, by less than a second.
const waitTimeout = 750 * time.Millisecond

// waitsPerStatement is the number of waits in one statement once the session was found
// alive. Each statement wakes two processes.
const waitsPerStatement = 40

// answerTimeout is how long a server may take to answer after the waits of a statement. A
// deputy of a server that never answers would not watch the next leader.
const answerTimeout = 30 * time.Second

// deputyCheckInterval is how often the server checks that a waiting deputy is alive. A
// deputy holds no lock that others need, and each check wakes its process.
const deputyCheckInterval = 2 * time.Second

const awaitEndSQL = `CALL forge_await_session_end($1, $2, $3, $4, NULL)`

// Watch is a deputy's connection. It waits for the end of a leader's session, which the
// server notices as soon as the leader's process dies. It holds no lock afterwards and
// elects no leader. It is not safe for concurrent use.
type Watch struct {
	conn *pgx.Conn
	// alive is true if the last wait found the session alive.
	alive bool
}

// OpenWatch connects a deputy.
func OpenWatch(ctx context.Context, cfg SessionConfig) (*Watch, error) {
	conn, err := connect(ctx, cfg, func(*pgx.ConnConfig) {}, func(ctx context.Context, conn *pgx.Conn) error {
		if err := watchConnection(ctx, conn, deputyCheckInterval); err != nil {
			return err
		}
		return setIdleTimeout(ctx, conn, cfg)
	})
	if err != nil {
		return nil, fmt.Errorf("open the deputy's session: %w", err)
	}
	return &Watch{conn: conn}, nil
}

// AwaitEnd waits for the end of the session that holds the lock (class, object), and
// returns the time of the end by the database's clock, or zero if the session is alive. The
// first wait is short, because a session that had ended before appears to end now. After an
// error the connection must be closed.
func (w *Watch) AwaitEnd(ctx context.Context, class, object int32) (time.Time, error) {
	var ended *time.Time
	waits := 1
	if w.alive {
		waits = waitsPerStatement
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(waits)*waitTimeout+answerTimeout)
	defer cancel()
	if err := w.conn.QueryRow(ctx, awaitEndSQL, class, object, waitTimeout, waits).Scan(&ended); err != nil {
		return time.Time{}, fmt.Errorf("wait for the leader's session to end: %w", err)
	}
	w.alive = ended == nil
	return postgres.TimeOrZero(ended), nil
}

// Close ends the connection.
func (w *Watch) Close() { postgres.CloseNow(w.conn) }
