package forge

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/progress"
)

// tracer tells the watchdog of a leader's loop (package progress) when the loop
// waits for the database: for a connection, or for the answer to a statement. Such a
// loop is slow at most; it does not hang.
type tracer struct{}

type waitKey struct{}

// beginWait notes a wait, which endWait ends.
func beginWait(ctx context.Context) context.Context {
	end := progress.Statement(ctx)
	if end == nil {
		return ctx
	}
	return context.WithValue(ctx, waitKey{}, end)
}

func endWait(ctx context.Context) {
	if end, ok := ctx.Value(waitKey{}).(func()); ok {
		end()
	}
}

func (tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return beginWait(ctx)
}

func (tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { endWait(ctx) }

func (tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return beginWait(ctx)
}

func (tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { endWait(ctx) }

func (tracer) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return beginWait(ctx)
}

func (tracer) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromEndData) {
	endWait(ctx)
}

func (tracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return beginWait(ctx)
}

func (tracer) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	endWait(ctx)
}
