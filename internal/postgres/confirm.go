package postgres

import (
	"context"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// ErrUnconfirmed is the error of a commit that succeeded on the primary but was not
// confirmed by any synchronous replica. A promotion may lose the commit.
var ErrUnconfirmed error = unconfirmedError{}

// unconfirmedError implements net.Error as a timeout: for any other error, pgx only
// keeps that the connection was closed, which callers may treat as safe to retry.
type unconfirmedError struct{}

func (unconfirmedError) Error() string {
	return "the server stopped waiting for a synchronous replica: the commit is on the primary and not confirmed"
}

func (unconfirmedError) Timeout() bool   { return true }
func (unconfirmedError) Temporary() bool { return false }

var _ net.Error = unconfirmedError{}

// syncRepRoutine is the server function that waits for synchronous replicas. The
// only message it reports is that a wait ended early.
const syncRepRoutine = "SyncRepWaitForLSN"

// ConfirmCommits makes commits fail with ErrUnconfirmed if the server ends their
// wait for a synchronous replica early, for example because an administrator
// cancels the statement. PostgreSQL reports this as a success with a warning. The
// connection is closed in this case.
func ConfirmCommits(config *pgconn.Config) {
	config.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.Routine == syncRepRoutine {
			// The success may already be in the buffer, so the reader is replaced.
			*conn.Frontend() = *pgproto3.NewFrontend(unconfirmed{}, conn.Conn())
		}
	}
}

// unconfirmed is a reader that always returns ErrUnconfirmed.
type unconfirmed struct{}

func (unconfirmed) Read([]byte) (int, error) { return 0, ErrUnconfirmed }

// ConfirmCall writes a record to the WAL after all earlier commits, as a part of a statement that
// is acknowledged. It is never null.
const ConfirmCall = `pg_logical_emit_message(true, 'forge', ''::text)`

// Execer is a pool, a connection or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Confirm returns once synchronous replicas, if there are any, have received
// everything committed before the call; within a transaction, this holds once the
// transaction has committed. Call it before acknowledging something that was only
// read: the commit that wrote it may have ended its wait early, as happens when the
// client cancels the statement.
func Confirm(ctx context.Context, db Execer) error {
	if _, err := db.Exec(ctx, "SELECT "+ConfirmCall); err != nil {
		return fmt.Errorf("wait for the synchronous replicas: %w", err)
	}
	return nil
}
