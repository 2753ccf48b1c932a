package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB runs statements: a pool, a connection or a transaction. On a transaction, Begin sets a
// savepoint.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Collect runs a query and scans all of its rows.
func Collect[T any](ctx context.Context, db DB, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectRows returns the error
	return pgx.CollectRows(rows, scan)
}

// Select is Collect for a statement that stands alone: what is the operation that an error
// names, such as "read silences".
func Select[T any](ctx context.Context, db DB, what string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	found, err := Collect(ctx, db, scan, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return found, nil
}

// First returns the first row of a query, and false if there is none. what is as in Select.
func First[T any](ctx context.Context, db DB, what string, scan pgx.RowToFunc[T], sql string, args ...any) (first T, found bool, err error) {
	rows, err := Select(ctx, db, what, scan, sql, args...)
	if len(rows) == 0 {
		return first, false, err
	}
	return rows[0], true, nil
}

// ForEach scans each row of a query into targets and calls each. what is as in Select.
func ForEach(ctx context.Context, db DB, what string, targets []any, each func() error, sql string, args ...any) error {
	rows, _ := db.Query(ctx, sql, args...) // ForEachRow returns the error
	if _, err := pgx.ForEachRow(rows, targets, each); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Exec runs a statement without a result. what is as in Select.
func Exec(ctx context.Context, db DB, what, sql string, args ...any) error {
	_, err := Affected(ctx, db, what, sql, args...)
	return err
}

// Affected runs a statement and returns the number of rows that it changed. what is as in
// Select.
func Affected(ctx context.Context, db DB, what, sql string, args ...any) (int64, error) {
	tag, err := db.Exec(ctx, sql, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return tag.RowsAffected(), nil
}

// CloseNow closes a connection, within a second if the server does not answer. It takes no
// context, because it must work even if the caller's has ended.
//
//nolint:contextcheck,nolintlint // contextcheck heeds this itself, unseen by nolintlint
func CloseNow(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the socket is closed even on error
}

// TimeOrZero returns the time of a nullable column in UTC; the zero time for NULL.
func TimeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
