package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrDeposed says that the term that wanted to write is no longer the current
// one. The writer must roll back and stop leading.
var ErrDeposed = errors.New("deposed: the term is over")

// Fence is the right to write in the name of one term of one role.
type Fence struct {
	Role        string
	Term        int64
	NodeID      string
	Incarnation string
}

// The fence takes FOR KEY SHARE: with UNIQUE (role, term) that blocks the next
// mint until the transaction ends, and not the leader's own renewal.
const fenceSQL = `
SELECT clock_timestamp()
FROM forge_leaders
WHERE role = $1 AND term = $2 AND incarnation = $3
FOR KEY SHARE`

// Check must be the first statement of a leader's writing transaction. It
// returns the database's clock, or ErrDeposed. Once it has succeeded no other
// term can be minted for the role before tx ends.
func (f Fence) Check(ctx context.Context, tx pgx.Tx) (time.Time, error) {
	var now time.Time
	err := tx.QueryRow(ctx, fenceSQL, f.Role, f.Term, f.Incarnation).Scan(&now)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, fmt.Errorf("%s term %d: %w", f.Role, f.Term, ErrDeposed)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("check the fence of %s: %w", f.Role, err)
	}
	return now, nil
}

// Beginner starts transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Do runs work in one fenced transaction and commits it. now is the database's
// clock after the fence was passed.
func (f Fence) Do(ctx context.Context, db Beginner, work func(tx pgx.Tx, now time.Time) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		now, err := f.Check(ctx, tx)
		if err != nil {
			return err
		}
		return work(tx, now)
	})
}
