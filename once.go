package forge

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/keystore"
)

// onceKeeper lets requests with a key take effect once.
type onceKeeper struct{ pool *pgxpool.Pool }

func (k onceKeeper) Once(ctx context.Context, r keystore.Request, work func(context.Context) keystore.Answer) (keystore.Answer, bool, error) {
	return keystore.Once(ctx, k.pool, r, func(tx pgx.Tx) keystore.Answer {
		return work(context.WithValue(ctx, requestTx{}, tx))
	})
}

func (k onceKeeper) Apart(ctx context.Context, r keystore.Request, work func(context.Context) keystore.Answer) (keystore.Answer, bool, error) {
	return keystore.Apart(ctx, k.pool, r, func() keystore.Answer { return work(ctx) })
}

type requestTx struct{}

// withinRequest does everything in the transaction of a request that has one, and
// else on the pool.
type withinRequest struct{ pool *pgxpool.Pool }

// ways is what a pool and a transaction have in common.
type ways interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func (w withinRequest) of(ctx context.Context) ways {
	if tx, ok := ctx.Value(requestTx{}).(pgx.Tx); ok {
		return tx
	}
	return w.pool
}

func (w withinRequest) Begin(ctx context.Context) (pgx.Tx, error) { return w.of(ctx).Begin(ctx) }

func (w withinRequest) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return w.of(ctx).Query(ctx, sql, args...)
}

func (w withinRequest) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return w.of(ctx).QueryRow(ctx, sql, args...)
}

func (w withinRequest) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return w.of(ctx).Exec(ctx, sql, args...)
}
