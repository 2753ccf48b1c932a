package forge

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// idempotencyStore executes requests with an idempotency key once.
type idempotencyStore struct{ pool *pgxpool.Pool }

func (s idempotencyStore) Once(ctx context.Context, r access.KeyedRequest, work func(context.Context) access.KeyedResponse) (access.KeyedResponse, bool, error) {
	return access.Once(ctx, s.pool, r, func(tx pgx.Tx) access.KeyedResponse {
		return work(context.WithValue(ctx, requestTx{}, tx))
	})
}

func (s idempotencyStore) OnceNonTx(ctx context.Context, r access.KeyedRequest, work func(context.Context) access.KeyedResponse) (access.KeyedResponse, bool, error) {
	return access.OnceNonTx(ctx, s.pool, r, func() access.KeyedResponse { return work(ctx) })
}

type requestTx struct{}

// requestDB uses the transaction of the request if it has one, and the pool otherwise.
type requestDB struct{ pool *pgxpool.Pool }

func (d requestDB) conn(ctx context.Context) postgres.DB {
	if tx, ok := ctx.Value(requestTx{}).(pgx.Tx); ok {
		return tx
	}
	return d.pool
}

func (d requestDB) Begin(ctx context.Context) (pgx.Tx, error) { return d.conn(ctx).Begin(ctx) }

func (d requestDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return d.conn(ctx).Query(ctx, sql, args...)
}

func (d requestDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return d.conn(ctx).QueryRow(ctx, sql, args...)
}

func (d requestDB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return d.conn(ctx).Exec(ctx, sql, args...)
}
