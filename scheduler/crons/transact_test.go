package crons

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A transaction that has passed the fence commits even if its term ends. A transaction
// that waits for its commit time is rolled back. No transaction begins after the term.
func TestFencedTransactionCommitsAfterItsTermEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE written (name text)`); err != nil {
		t.Fatal(err)
	}
	firer := newFirer(t, pool, newInserter(t, pool))
	l := newLedger(firer.options, "public", makeLeader(t, pool, "n1"), firer.meter, firer.options.Logger)
	for _, test := range []struct {
		name    string
		at      time.Time
		over    bool // the term ends before the transaction begins
		commits bool
	}{
		{name: "under the fence", commits: true},
		{name: "before its instant", at: time.Now().Add(time.Hour)},
		{name: "after the term", over: true},
	} {
		ctx, end := context.WithCancel(t.Context())
		if test.over {
			end()
		}
		err := l.transact(ctx, test.at, func(ctx context.Context, tx pgx.Tx, _ time.Time, _ time.Duration) error {
			end()
			_, err := tx.Exec(ctx, `INSERT INTO written VALUES ($1)`, test.name)
			return err
		})
		end()
		if (err == nil) != test.commits || err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", test.name, err)
		}
		if n := count(t, pool, `SELECT count(*) FROM written WHERE name = $1`, test.name); (n == 1) != test.commits {
			t.Errorf("%s: %d rows are written", test.name, n)
		}
	}
}
