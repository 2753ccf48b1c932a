package patterns

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

const tryLock = `SELECT pg_try_advisory_lock(7)`

// ask is a statement with one answer.
func ask[T any](t *testing.T, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any,
) T {
	t.Helper()
	var answer T
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) int64 {
	t.Helper()
	tag, err := pool.Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// A lock that is taken through a pool belongs to whichever connection the pool lent:
// it is won twice, and lost without a word when the pool replaces that connection.
func TestLockThroughAPool(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	leader, rival := pgtest.Connect(t, url), pgtest.Connect(t, url)
	for caller := range 2 {
		if !ask[bool](t, leader, tryLock) {
			t.Errorf("caller %d of one process did not win the lock", caller+1)
		}
	}
	if ask[bool](t, rival, tryLock) {
		t.Error("another process won a lock that is held")
	}
	leader.Reset() // as the end of a connection's lifetime does
	nodes.Eventually(t, nodes.WaitTimeout, "the lock goes with the connection", func() bool { return ask[bool](t, rival, tryLock) })
	if !ask[bool](t, leader, `SELECT true`) {
		t.Error("the old leader's pool has noticed something")
	}
}

// A holder that is stopped is silent, and a silent session keeps its lock unless the
// server was told to end it.
func TestStoppedHolderKeepsItsLock(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	patient, bounded, rival := pgtest.Connect(t, url), pgtest.Connect(t, url), pgtest.Connect(t, url)
	ask[bool](t, patient, `SELECT pg_try_advisory_lock(1)`)
	ask[string](t, bounded, `SELECT set_config('idle_session_timeout', '300', false) FROM (SELECT pg_try_advisory_lock(2)) AS locked`)
	nodes.Eventually(t, nodes.WaitTimeout, "the server ends the session that it was told to end", func() bool { return ask[bool](t, rival, `SELECT pg_try_advisory_lock(2)`) })
	if ask[bool](t, rival, `SELECT pg_try_advisory_lock(1)`) {
		t.Error("the lock of a silent session was free")
	}
}

// Standbys that look at a lease before they try the lock leave it free after a crash,
// until the lease runs out.
func TestLeaseThatGatesTheLock(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	leader, standby := pgtest.Connect(t, url), pgtest.Connect(t, url)
	ask[bool](t, leader, tryLock)
	execute(t, standby, `CREATE TABLE leaders AS SELECT 'a' AS node, now() + interval '1 minute' AS lease_until`)
	leader.Close()
	nodes.Eventually(t, nodes.WaitTimeout, "the lock goes with its session", func() bool { return ask[bool](t, standby, tryLock) })
	if left := ask[float64](t, standby, `SELECT extract(epoch FROM lease_until - now())::float8 FROM leaders`); left < 30 {
		t.Errorf("the gate opens in %.0f seconds", left)
	}
}

// A leader that deletes its row when it steps down gives its successor the same term.
func TestTermsThatStartOver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	execute(t, pool, `CREATE TABLE election (service text PRIMARY KEY, leader text, term int)`)
	const become = `
INSERT INTO election VALUES ('s', $1, 1)
ON CONFLICT (service) DO UPDATE SET leader = excluded.leader, term = election.term + 1
RETURNING term`
	first := ask[int](t, pool, become, "a")
	execute(t, pool, `DELETE FROM election WHERE leader = 'a'`)
	if second := ask[int](t, pool, become, "b"); second != first {
		t.Fatalf("terms %d and %d", first, second)
	}
	if !ask[bool](t, pool, `SELECT term = $1 FROM election`, first) {
		t.Error("a write of the first leader did not pass a check of its term")
	}
}

// An upsert that also takes a lease with a lower term takes it from a leader that
// lives: a candidate has only to count up.
func TestUpsertThatStealsALiveLease(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	execute(t, pool, `CREATE TABLE lease (id int PRIMARY KEY, leader text, term int, expires_at timestamptz)`)
	const acquire = `
INSERT INTO lease VALUES (1, $1, $2, now() + interval '30 s')
ON CONFLICT (id) DO UPDATE SET leader = excluded.leader, term = excluded.term, expires_at = excluded.expires_at
WHERE lease.expires_at <= now() OR lease.term < excluded.term`
	if execute(t, pool, acquire, "a", 1) != 1 || execute(t, pool, acquire, "b", 1) != 0 {
		t.Fatal("the lease does not hold within a term")
	}
	if execute(t, pool, acquire, "b", 2) != 1 {
		t.Error("the live lease was not taken")
	}
}

// Two candidates that read a lease, find it over, write it and read it again have both
// seen themselves as the leader, unless the write depends on what was read.
func TestLeaseThatIsReadAndThenWritten(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	execute(t, pool, `CREATE TABLE lease AS SELECT 'dead' AS holder, now() - interval '1 s' AS until`)
	over := func() bool { return ask[bool](t, pool, `SELECT until < now() FROM lease`) }
	patched := func(name string) bool {
		execute(t, pool, `UPDATE lease SET holder = $1, until = now() + interval '15 s'`, name)
		return ask[string](t, pool, `SELECT holder FROM lease`) == name
	}
	if a, b := over(), over(); !a || !b {
		t.Fatal("the lease is not over")
	}
	if !patched("a") || !patched("b") {
		t.Error("only one of them took itself for the leader")
	}
}
