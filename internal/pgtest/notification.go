package pgtest

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// WaitForNotification returns the next notification that conn receives, except those of inserts late
// in a transaction: on a slow machine, any insert may be late.
func WaitForNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	for {
		note, err := conn.WaitForNotification(ctx)
		if err != nil || !strings.HasPrefix(note.Payload, `{"queue" : "", "from" : `) {
			return note, err
		}
	}
}
