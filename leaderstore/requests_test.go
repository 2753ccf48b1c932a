package leaderstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

func TestRequestReachesTheLeaderOfThatTerm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	term := c.win(a).Fence.Term
	drain(t, a)
	if err := leaderstore.Request(t.Context(), c.pool, role, term+1, "b"); !errors.Is(err, leaderstore.ErrTermOver) {
		t.Fatalf("a request for no term: %v", err)
	}
	if err := leaderstore.Request(t.Context(), c.pool, role, term, "b"); err != nil {
		t.Fatal(err)
	}
	if notified, err := a.Wait(t.Context()); err != nil || !notified {
		t.Fatalf("the leader was not told: %v, %v", notified, err)
	}
	held := []leaderstore.Held{{Role: role, Term: term}}
	want := leaderstore.Renewed{Role: role, HandOver: true, Target: "b"}
	if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 1 || still[0] != want {
		t.Fatalf("renewed %+v, %v; want %+v", still, err, want)
	}
	if err := leaderstore.Withdraw(t.Context(), c.pool, role, term); err != nil {
		t.Fatal(err)
	}
	if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 1 || still[0].HandOver {
		t.Fatalf("after the withdrawal: %+v, %v", still, err)
	}
}

func TestTransferredRoleIsKeptForItsTarget(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	long := func(cfg *leaderstore.SessionConfig) { cfg.CheckInterval = time.Minute }
	a, b, other := c.open("a", long), c.open("b", long), c.open("c", long)
	ifAsked := lock
	ifAsked.IfAsked = true
	if won, err := b.TryLocks(t.Context(), []leaderstore.Lock{ifAsked}); err != nil || len(won) != 0 {
		t.Fatalf("unasked it won %v, %v", won, err)
	}
	term := c.win(a).Fence.Term
	if err := leaderstore.Request(t.Context(), c.pool, role, term, "b"); err != nil {
		t.Fatal(err)
	}
	if err := a.Resign(t.Context(), lock, term, "transferred"); err != nil {
		t.Fatal(err)
	}
	for _, try := range []leaderstore.Lock{lock, ifAsked} {
		if won, err := other.TryLocks(t.Context(), []leaderstore.Lock{try}); err != nil || len(won) != 0 {
			t.Fatalf("another node won %v, %v", won, err)
		}
	}
	if won, err := b.TryLocks(t.Context(), []leaderstore.Lock{ifAsked}); err != nil || len(won) != 1 {
		t.Fatalf("the target, which waits to be asked, won %v, %v", won, err)
	}
	if err := b.Unlock(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	c.win(b)
	if ended := c.history()[1]; ended.EndReason != "transferred" {
		t.Fatalf("ended as %s", ended.EndReason)
	}
}

func TestRoleThatIsLeftToOthersIsOpenWhenOneOfThemHasLed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	first := c.win(a).Fence.Term
	if err := a.Resign(t.Context(), lock, first, "stepped_down"); err != nil {
		t.Fatal(err)
	}
	failed, left := lock, lock
	failed.IfAsked, left.IfAsked, left.LeftAt = true, true, first
	for _, try := range []leaderstore.Lock{failed, left} {
		if won, err := a.TryLocks(t.Context(), []leaderstore.Lock{try}); err != nil || len(won) != 0 {
			t.Fatalf("before another has led it won %v, %v", won, err)
		}
	}
	if err := b.Resign(t.Context(), lock, c.win(b).Fence.Term, "stepped_down"); err != nil {
		t.Fatal(err)
	}
	if won, err := a.TryLocks(t.Context(), []leaderstore.Lock{failed}); err != nil || len(won) != 0 {
		t.Fatalf("where its work has failed it won %v, %v", won, err)
	}
	if won, err := a.TryLocks(t.Context(), []leaderstore.Lock{left}); err != nil || len(won) != 1 {
		t.Fatalf("after another has led it won %v, %v", won, err)
	}
}

func TestTransferThatItsTargetDoesNotTakeGoesToOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	short := func(cfg *leaderstore.SessionConfig) { cfg.CheckInterval = 100 * time.Millisecond }
	a, other := c.open("a", short), c.open("c", short)
	term := c.win(a).Fence.Term
	if err := leaderstore.Request(t.Context(), c.pool, role, term, "b"); err != nil {
		t.Fatal(err)
	}
	if err := a.Resign(t.Context(), lock, term, "transferred"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(nodes.Patience); ; {
		won, err := other.TryLocks(t.Context(), []leaderstore.Lock{lock})
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("won %v, %v", won, err)
		}
		if len(won) == 1 {
			return
		}
	}
}

func TestFollowTellsOfChanges(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	changes, err := leaderstore.Follow(t.Context(), c.pool)
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	began := time.Now()
	c.win(a)
	if err := changes.Wait(t.Context(), time.Minute); err != nil || time.Since(began) > 50*time.Second {
		t.Fatalf("not told: %v after %v", err, time.Since(began))
	}
	if err := changes.Wait(t.Context(), time.Millisecond); err != nil {
		t.Fatalf("a quiet wait: %v", err)
	}
}

// Any language may ask who leads, and fence its writes.
func TestSQLFunctions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	term := c.win(a).Fence.Term
	ask := func() (node string, current bool) {
		t.Helper()
		err := c.pool.QueryRow(t.Context(), `
SELECT coalesce((SELECT node_id FROM forge_leader($1)), ''), forge_term_is_current($1, $2)`, role, term).Scan(&node, &current)
		if err != nil {
			t.Fatal(err)
		}
		return node, current
	}
	if node, current := ask(); node != "a" || !current {
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
	if _, err := b.Mint(t.Context(), role, leaderstore.End{}); !errors.Is(err, leaderstore.ErrBusy) {
		t.Fatalf("minted under an open fence: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mint(t.Context(), role, leaderstore.End{}); err != nil {
		t.Fatal(err)
	}
	if node, current := ask(); node != "b" || current {
		t.Fatalf("%q leads, old term current: %v", node, current)
	}
}
