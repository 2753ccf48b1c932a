package leaderstore_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

func TestRequestReachesLeaderOfThatTermOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	term := c.win(a).Fence.Term
	drain(t, a)
	if err := leaderstore.New(c.pool).Request(t.Context(), role, term+1, "b"); !errors.Is(err, leaderstore.ErrTermOver) {
		t.Fatalf("a request for no term: %v", err)
	}
	if err := leaderstore.New(c.pool).Request(t.Context(), role, term, "b"); err != nil {
		t.Fatal(err)
	}
	if notified, err := a.Wait(t.Context()); err != nil || !notified {
		t.Fatalf("the leader was not notified: %v, %v", notified, err)
	}
	held := []leaderstore.Held{{Role: role, Term: term}}
	want := leaderstore.Renewed{Role: role, HandOver: true, Target: "b"}
	if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 1 || still[0] != want {
		t.Fatalf("renewed %+v, %v; want %+v", still, err, want)
	}
	if err := leaderstore.New(c.pool).Withdraw(t.Context(), role, term); err != nil {
		t.Fatal(err)
	}
	if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 1 || still[0].HandOver {
		t.Fatalf("after the withdrawal: %+v, %v", still, err)
	}
}

func TestTransferredRoleIsReservedForTarget(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	long := func(cfg *leaderstore.SessionConfig) { cfg.CheckInterval = time.Minute }
	a, b, other := c.open("a", long), c.open("b", long), c.open("c", long)
	onRequest := lock
	onRequest.OnlyOnRequest = true
	if won, err := b.TryLocks(t.Context(), []leaderstore.Lock{onRequest}); err != nil || len(won) != 0 {
		t.Fatalf("without a request b won %v, %v", won, err)
	}
	term := c.win(a).Fence.Term
	if err := leaderstore.New(c.pool).Request(t.Context(), role, term, "b"); err != nil {
		t.Fatal(err)
	}
	if err := a.Resign(t.Context(), lock, term, "transferred"); err != nil {
		t.Fatal(err)
	}
	for _, try := range []leaderstore.Lock{lock, onRequest} {
		if won, err := other.TryLocks(t.Context(), []leaderstore.Lock{try}); err != nil || len(won) != 0 {
			t.Fatalf("another node won %v, %v", won, err)
		}
	}
	if won, err := b.TryLocks(t.Context(), []leaderstore.Lock{onRequest}); err != nil || len(won) != 1 {
		t.Fatalf("the target, in back-off, won %v, %v", won, err)
	}
	if err := b.Unlock(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	c.win(b)
	if ended := c.history()[1]; ended.EndReason != "transferred" {
		t.Fatalf("ended as %s", ended.EndReason)
	}
}

// A resignation frees the lock before it commits. A node that wins the lock in between gives
// it back, and the target is notified.
func TestLockWonDuringResignationGoesToTarget(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, other := c.open("a"), c.open("b"), c.open("c")
	term := c.win(a).Fence.Term
	if err := leaderstore.New(c.pool).Request(t.Context(), role, term, "b"); err != nil {
		t.Fatal(err)
	}
	holding, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holding.Rollback(t.Context()) }()
	if _, err := holding.Exec(t.Context(), `SELECT FROM forge_leader_requests FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	resigned := make(chan error, 1)
	go func() { resigned <- a.Resign(t.Context(), lock, term, "transferred") }()
	for won := []string{}; len(won) == 0; {
		if won, err = other.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil {
			t.Fatal(err)
		}
	}
	if err := holding.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-resigned; err != nil {
		t.Fatal(err)
	}
	drain(t, b)
	if _, err := other.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); !errors.Is(err, leaderstore.ErrBusy) {
		t.Fatalf("another node acquired the reserved role: %v", err)
	}
	if err := other.Unlock(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	if notified, err := b.Wait(t.Context()); err != nil || !notified {
		t.Fatalf("the target was not notified: %v, %v", notified, err)
	}
	c.win(b)
}

func TestLockBackOffLastsUntilAnotherNodeHasLed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	first := c.win(a).Fence.Term
	if err := a.Resign(t.Context(), lock, first, "stepped_down"); err != nil {
		t.Fatal(err)
	}
	failed, left := lock, lock
	failed.OnlyOnRequest, left.OnlyOnRequest, left.HandedOverTerm = true, true, first
	for _, try := range []leaderstore.Lock{failed, left} {
		if won, err := a.TryLocks(t.Context(), []leaderstore.Lock{try}); err != nil || len(won) != 0 {
			t.Fatalf("before another node has led, a won %v, %v", won, err)
		}
	}
	if err := b.Resign(t.Context(), lock, c.win(b).Fence.Term, "stepped_down"); err != nil {
		t.Fatal(err)
	}
	if won, err := a.TryLocks(t.Context(), []leaderstore.Lock{failed}); err != nil || len(won) != 0 {
		t.Fatalf("after failed work a won %v, %v", won, err)
	}
	if won, err := a.TryLocks(t.Context(), []leaderstore.Lock{left}); err != nil || len(won) != 1 {
		t.Fatalf("after another node has led, a won %v, %v", won, err)
	}
}

func TestUntakenTransferIsOpenToOtherNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	short := func(cfg *leaderstore.SessionConfig) { cfg.CheckInterval = 100 * time.Millisecond }
	a, other := c.open("a", short), c.open("c", short)
	term := c.win(a).Fence.Term
	if err := leaderstore.New(c.pool).Request(t.Context(), role, term, "b"); err != nil {
		t.Fatal(err)
	}
	if err := a.Resign(t.Context(), lock, term, "transferred"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(nodes.WaitTimeout); ; {
		won, err := other.TryLocks(t.Context(), []leaderstore.Lock{lock})
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("won %v, %v", won, err)
		}
		if len(won) == 1 {
			return
		}
	}
}

func TestNewTermIsNotified(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	notifier := postgres.NewNotifier(c.pool, slog.New(slog.DiscardHandler))
	changes, unsubscribe := notifier.Changes(wire.Channel("public", wire.LeaderChannel))
	defer unsubscribe()
	await := func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(nodes.WaitTimeout):
			t.Fatalf("%s: not notified", what)
		}
	}
	await("subscription")
	select {
	case <-changes:
		t.Fatal("notified without a change")
	default:
	}
	c.win(a)
	await("new term")
}

// SQL functions let programs in any language read the leader and fence their writes.
func TestSQLFunctions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	term := c.win(a).Fence.Term
	read := func() (node string, current bool) {
		t.Helper()
		err := c.pool.QueryRow(t.Context(), `
SELECT coalesce((SELECT node_id FROM forge_leader($1)), ''), forge_term_is_current($1, $2)`, role, term).Scan(&node, &current)
		if err != nil {
			t.Fatal(err)
		}
		return node, current
	}
	if node, current := read(); node != "a" || !current {
		t.Fatalf("%q leads, term current: %v", node, current)
	}
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SELECT forge_term_is_current($1, $2)`, role, term); err != nil {
		t.Fatal(err)
	}
	b := c.open("b")
	a.Close()
	for won := []string{}; len(won) == 0; {
		if won, err = b.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); !errors.Is(err, leaderstore.ErrBusy) {
		t.Fatalf("acquired a term during a fenced transaction: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); err != nil {
		t.Fatal(err)
	}
	if node, current := read(); node != "b" || current {
		t.Fatalf("%q leads, old term current: %v", node, current)
	}
}
