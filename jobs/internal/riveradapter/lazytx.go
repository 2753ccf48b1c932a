package riveradapter

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lazyTx is a transaction that begins with its first statement. Without a statement, commit
// and rollback do nothing.
type lazyTx struct {
	ctx  context.Context //nolint:containedctx // of the caller of Begin, for Conn, which takes none
	pool *pgxpool.Pool
	tx   pgx.Tx // nil until it has begun
}

var _ pgx.Tx = (*lazyTx)(nil)

func (t *lazyTx) unused() bool { return t.tx == nil }

func (t *lazyTx) begun(ctx context.Context) (pgx.Tx, error) {
	if t.tx != nil {
		return t.tx, nil
	}
	tx, err := t.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	t.tx = tx
	return tx, nil
}

// Begin implements pgx.Tx.
func (t *lazyTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Begin(ctx)
}

// Commit implements pgx.Tx.
func (t *lazyTx) Commit(ctx context.Context) error {
	if t.unused() {
		return nil
	}
	return t.tx.Commit(ctx)
}

// Rollback implements pgx.Tx.
func (t *lazyTx) Rollback(ctx context.Context) error {
	if t.unused() {
		return nil
	}
	return t.tx.Rollback(ctx)
}

// CopyFrom implements pgx.Tx.
func (t *lazyTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return 0, err
	}
	return tx.CopyFrom(ctx, table, columns, source)
}

// SendBatch implements pgx.Tx.
func (t *lazyTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	tx, err := t.begun(ctx)
	if err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	return tx.SendBatch(ctx, batch)
}

// LargeObjects implements pgx.Tx. River does not use it.
func (t *lazyTx) LargeObjects() pgx.LargeObjects {
	if tx, err := t.begun(t.ctx); err == nil {
		return tx.LargeObjects()
	}
	return pgx.LargeObjects{}
}

// Prepare implements pgx.Tx.
func (t *lazyTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Prepare(ctx, name, sql)
}

// Exec implements pgx.Tx.
func (t *lazyTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return tx.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx.
func (t *lazyTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (t *lazyTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	tx, err := t.begun(ctx)
	if err != nil {
		return failedRow{err}
	}
	return tx.QueryRow(ctx, sql, args...)
}

// Conn implements pgx.Tx. It returns nil if the transaction cannot begin; the next statement
// returns the error.
func (t *lazyTx) Conn() *pgx.Conn {
	tx, err := t.begun(t.ctx)
	if err != nil {
		return nil
	}
	return tx.Conn()
}

// failedRow is the row of a transaction that could not begin.
type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }
