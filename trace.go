package forge

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

// tracer reports to the watchdog of a leader's loop (package watchdog) when the loop waits
// for the database: for a connection, or for the result of a statement. Such a loop may be
// slow, but it has not stalled.
type tracer struct{}

type databaseWaitKey struct{}

// beginDatabaseWait begins a wait that endDatabaseWait ends.
func beginDatabaseWait(ctx context.Context) context.Context {
	end := watchdog.Statement(ctx)
	if end == nil {
		return ctx
	}
	return context.WithValue(ctx, databaseWaitKey{}, end)
}

func endDatabaseWait(ctx context.Context) {
	if end, ok := ctx.Value(databaseWaitKey{}).(func()); ok {
		end()
	}
}

func (tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return beginDatabaseWait(ctx)
}

func (tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	endDatabaseWait(ctx)
}

func (tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return beginDatabaseWait(ctx)
}

func (tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	endDatabaseWait(ctx)
}

func (tracer) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return beginDatabaseWait(ctx)
}

func (tracer) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromEndData) {
	endDatabaseWait(ctx)
}

func (tracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return beginDatabaseWait(ctx)
}

func (tracer) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	endDatabaseWait(ctx)
}
