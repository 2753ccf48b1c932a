package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

type txKey struct{}

// WithTx returns a context whose statements on a RequestDB run in the transaction.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// RequestDB runs statements in the transaction of the context if it has one, and on the
// pool otherwise.
type RequestDB struct{ Pool *pgxpool.Pool }

var _ DB = RequestDB{}

func (d RequestDB) of(ctx context.Context) DB {
	if tx, ok := ctx.Value(txKey{}).(pgx.Tx); ok {
		return tx
	}
	return d.Pool
}

// Begin implements DB.
func (d RequestDB) Begin(ctx context.Context) (pgx.Tx, error) { return d.of(ctx).Begin(ctx) }

// Query implements DB.
func (d RequestDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return d.of(ctx).Query(ctx, sql, args...)
}

// QueryRow implements DB.
func (d RequestDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return d.of(ctx).QueryRow(ctx, sql, args...)
}

// Exec implements DB.
func (d RequestDB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return d.of(ctx).Exec(ctx, sql, args...)
}

// SendBatch implements DB.
func (d RequestDB) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return d.of(ctx).SendBatch(ctx, batch)
}
