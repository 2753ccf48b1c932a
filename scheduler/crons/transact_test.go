package crons

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
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
	l := newLedger(firer.options, makeLeader(t, pool, "n1"), newTermCache(), firer.meter, firer.options.Logger)
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
		err := l.transact(ctx, test.at, func(ctx context.Context, tx pgx.Tx, _ time.Time, _ time.Duration) ([]jobstore.NewJob, error) {
			end()
			_, err := tx.Exec(ctx, `INSERT INTO written VALUES ($1)`, test.name)
			return nil, err
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

// A commit that waits for a replica in vain may exist on the primary. The leader records
// nothing more before the replica has confirmed it, and then continues in the same term.
func TestUnconfirmedCommitKeepsTerm(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	pool := pgtest.Connect(t, server.URL())
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": everySecond("allow")})
	rewind(t, pool, time.Minute)
	firer := newFirer(t, pool, newInserter(t, pool))
	fence := makeLeader(t, pool, "n1")
	server.MissReplica()
	tickLedger := newLedger(firer.options, fence, newTermCache(), firer.meter, firer.options.Logger)
	loop := newFireLoop(impatient{tickLedger}, newTermCache(), firer.meter, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- loop.run(ctx, nil) }()
	await(t, pool, 1, `SELECT count(*) FROM forge_cron_ticks`)
	recorded := count(t, pool, `SELECT count(*) FROM forge_cron_ticks`)
	time.Sleep(4 * impatience)
	if now := count(t, pool, `SELECT count(*) FROM forge_cron_ticks`); now != recorded {
		t.Errorf("%d rows without the replica, %d after its first absence", now, recorded)
	}
	server.RestoreReplica()
	await(t, pool, 1, `SELECT count(*) FROM forge_crons WHERE watermark > now() - interval '2 s'`)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the term ended: %v", err)
	}
	if wrong := count(t, pool, holesSQL, "a"); wrong != 0 {
		t.Errorf("%d ticks are not recorded exactly once", wrong)
	}
}

// impatience is how long an impatient store waits.
const impatience = time.Second

// impatient is a ledger whose transactions time out soon.
type impatient struct{ *ledger }

func (l impatient) Fire(ctx context.Context, names []string, at time.Time) (fireResult, error) {
	ctx, cancel := context.WithTimeout(ctx, impatience)
	defer cancel()
	return l.ledger.Fire(ctx, names, at)
}
