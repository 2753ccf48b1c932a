package dbpool

import (
	"context"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// ErrUnconfirmed is the error of a commit that stands on the primary, and that no
// synchronous replica has confirmed: a promotion may lose it.
var ErrUnconfirmed error = unconfirmedError{}

// unconfirmedError is a timeout: of another error pgx keeps no more than that the
// connection was closed, which callers may take as safe to retry.
type unconfirmedError struct{}

func (unconfirmedError) Error() string {
	return "the server stopped waiting for a synchronous replica: the commit is on the primary and not confirmed"
}

func (unconfirmedError) Timeout() bool   { return true }
func (unconfirmedError) Temporary() bool { return false }

var _ net.Error = unconfirmedError{}

// syncRepRoutine is the server's function that waits for synchronous replicas. All that
// it ever reports is that a wait was ended early.
const syncRepRoutine = "SyncRepWaitForLSN"

// ConfirmCommits makes commits fail with ErrUnconfirmed if the server ends their wait for
// a synchronous replica early, as when an administrator cancels the statement. For
// PostgreSQL that is a success with a warning. The connection is closed then.
func ConfirmCommits(config *pgconn.Config) {
	config.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.Routine == syncRepRoutine {
			// The success may already be in the buffer, so its reader is replaced.
			*conn.Frontend() = *pgproto3.NewFrontend(unconfirmed{}, conn.Conn())
		}
	}
}

// unconfirmed is a reader that ends with ErrUnconfirmed.
type unconfirmed struct{}

func (unconfirmed) Read([]byte) (int, error) { return 0, ErrUnconfirmed }

// confirmSQL writes something to the WAL, behind the commits that are there already.
const confirmSQL = `SELECT pg_logical_emit_message(true, 'forge', ''::text)`

// Execer is a pool, a connection or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Confirm returns once synchronous replicas, if there are any, have all that was
// committed before; within a transaction that is so once it has committed. It is needed
// before something is acknowledged that was only read: the wait of its own commit may
// have ended early, as it does when the client gives the statement up.
func Confirm(ctx context.Context, db Execer) error {
	if _, err := db.Exec(ctx, confirmSQL); err != nil {
		return fmt.Errorf("wait for the synchronous replicas: %w", err)
	}
	return nil
}
