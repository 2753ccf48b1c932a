package leaderstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

// pooled is a cluster that is only reached through a pooler in transaction mode
// with fewer connections than clients.
func pooled(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.url = pgtest.StartBouncer(t, c.url, "transaction", "default_pool_size = 2").URL()
	return c
}

func (c *cluster) openLease(node string) *leaderstore.LeaseSession {
	c.t.Helper()
	s, err := leaderstore.OpenLease(c.t.Context(), c.config(node), []string{role, "log_compactor"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.Close)
	return s
}

// take is a candidate's whole attempt; false: the role is not free.
func (c *cluster) take(s *leaderstore.LeaseSession) (leaderstore.Minted, bool) {
	c.t.Helper()
	free, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(free) == 0 {
		return leaderstore.Minted{}, false
	}
	minted, err := s.Mint(c.t.Context(), role, leaderstore.End{})
	if errors.Is(err, leaderstore.ErrBusy) {
		return leaderstore.Minted{}, false
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return minted, true
}

// lease is one that tests wait for.
const lease = 500 * time.Millisecond

// shorten lets the leader's lease end soon. No session of the test has such a one:
// the server would end that of a test that is slow.
func (c *cluster) shorten() {
	c.t.Helper()
	c.exec(`UPDATE forge_leaders SET renewed_at = clock_timestamp(), lease_until = clock_timestamp() + interval '500 ms' WHERE role = 'scheduler'`)
}

func TestLeaseElectsThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	c := pooled(t)
	a, b := c.openLease("a"), c.openLease("b")
	first, ok := c.take(a)
	if !ok || first.Fence.Term != 1 {
		t.Fatalf("a took nothing: %+v", first)
	}
	held := []leaderstore.Held{{Role: role, Term: 1}}
	for range 10 { // on whichever server connection
		if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 1 {
			t.Fatalf("renewed %v, %v", still, err)
		}
		if _, ok := c.take(b); ok {
			t.Fatal("b took a role whose lease runs")
		}
	}
	leader := c.leader()
	if leader.NodeID != "a" || leader.BackendPID != 0 || !leader.Leads() {
		t.Fatalf("row: %+v", leader)
	}
	if locks := c.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); locks != 0 {
		t.Fatalf("%d advisory locks", locks)
	}
	if err := a.Resign(t.Context(), lock, 1, "resigned"); err != nil {
		t.Fatal(err)
	}
	second, ok := c.take(b) // at once: nothing runs out first
	if !ok || second.Fence.Term != 2 || !second.Failover {
		t.Fatalf("after a resigned: %+v, %v", second, ok)
	}
	if ended := c.history()[1]; ended.EndReason != "resigned" {
		t.Fatalf("ended tenure: %+v", ended)
	}
}

// A process that is gone or frozen keeps the role for its lease and no longer,
// and Wait says when that is.
func TestLeaseRunsOut(t *testing.T) {
	t.Parallel()
	c := pooled(t)
	a, b := c.openLease("a"), c.openLease("b")
	if _, ok := c.take(a); !ok {
		t.Fatal("a took nothing")
	}
	if _, ok := c.take(b); ok {
		t.Fatal("b took a role whose lease runs")
	}
	began := time.Now()
	c.shorten()
	if _, ok := c.take(b); !ok { // as it should be, unless this comes late
		waiting, cancel := context.WithTimeout(t.Context(), nodes.Patience)
		defer cancel()
		if look, err := b.Wait(waiting); err != nil || !look {
			t.Fatalf("nothing tells b that the lease has run out: %v, %v", look, err)
		}
		if _, ok := c.take(b); !ok {
			t.Fatal("the lease has run out and b took nothing")
		}
	}
	if took := time.Since(began); took < lease*9/10 {
		t.Fatalf("taken over after %v of a lease of %v", took, lease)
	}
	if ended := c.history()[1]; ended.EndReason != "lease_expired" {
		t.Fatalf("ended tenure: %+v", ended)
	}
	if still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err != nil || len(still) != 0 {
		t.Fatalf("the first leader could still renew: %v, %v", still, err)
	}
}

// Nobody has taken the role, and yet the term is over.
func TestExpiredLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	c := pooled(t)
	a := c.openLease("a")
	if _, ok := c.take(a); !ok {
		t.Fatal("a took nothing")
	}
	c.exec(`UPDATE forge_leaders SET lease_until = clock_timestamp() WHERE role = 'scheduler'`)
	if still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err != nil || len(still) != 0 {
		t.Fatalf("renewed %v, %v after the lease", still, err)
	}
	again, ok := c.take(a)
	if !ok || again.Fence.Term != 2 {
		t.Fatalf("a's own next term: %+v, %v", again, ok)
	}
}

func TestOneOfManyTakesAFreeRole(t *testing.T) {
	t.Parallel()
	c := pooled(t)
	var sessions []*leaderstore.LeaseSession
	for _, node := range []string{"a", "b", "c", "d", "e", "f"} {
		s := c.openLease(node)
		if free, err := s.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil || len(free) != 1 {
			t.Fatalf("free: %v, %v", free, err)
		}
		sessions = append(sessions, s)
	}
	var together sync.WaitGroup
	errs := make([]error, len(sessions))
	for i, s := range sessions {
		together.Go(func() { _, errs[i] = s.Mint(t.Context(), role, leaderstore.End{}) })
	}
	together.Wait()
	minted := 0
	for _, err := range errs {
		switch {
		case err == nil:
			minted++
		case !errors.Is(err, leaderstore.ErrBusy):
			t.Errorf("a loser got %v", err)
		}
	}
	if minted != 1 {
		t.Errorf("%d minted", minted)
	}
}

// While a cluster changes its strategy node by node, a term that was won by lease
// is safe from locks, and one that was won by a lock is safe for its lease.
func TestStrategiesRespectEachOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	byLock, byLease := c.open("a"), c.openLease("b")
	c.win(byLock)
	if _, ok := c.take(byLease); ok {
		t.Fatal("taken from a leader who holds the lock")
	}
	if err := byLock.Resign(t.Context(), lock, 1, "resigned"); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.take(byLease); !ok {
		t.Fatal("a vacant role was not taken")
	}
	if won, err := byLock.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil || len(won) != 0 {
		t.Fatalf("locked %v, %v in the midst of a lease", won, err)
	}
	if _, err := byLock.Mint(t.Context(), role, leaderstore.End{}); !errors.Is(err, leaderstore.ErrBusy) {
		t.Fatalf("minted in the midst of a lease: %v", err)
	}
	c.exec(`UPDATE forge_leaders SET lease_until = clock_timestamp()`)
	if third := c.win(byLock); third.Fence.Term != 3 {
		t.Fatalf("after the lease: %+v", third)
	}
}

func TestReservedRoleIsNotFree(t *testing.T) {
	t.Parallel()
	c := pooled(t)
	a, b, other := c.openLease("a"), c.openLease("b"), c.openLease("c")
	ifAsked := lock
	ifAsked.IfAsked = true
	if free, err := b.TryLocks(t.Context(), []leaderstore.Lock{ifAsked}); err != nil || len(free) != 0 {
		t.Fatalf("free to one that nobody has asked: %v, %v", free, err)
	}
	if _, ok := c.take(a); !ok {
		t.Fatal("a took nothing")
	}
	if err := leaderstore.Request(t.Context(), c.pool, role, 1, "b"); err != nil {
		t.Fatal(err)
	}
	still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}})
	if err != nil || len(still) != 1 || !still[0].HandOver || still[0].Target != "b" {
		t.Fatalf("renewed %v, %v", still, err)
	}
	if err := a.Resign(t.Context(), lock, 1, "transferred"); err != nil {
		t.Fatal(err)
	}
	c.exec(`UPDATE forge_leader_requests SET reserved_until = clock_timestamp() + interval '1 hour'`)
	for who, want := range map[*leaderstore.LeaseSession]int{other: 0, b: 1} {
		if free, err := who.TryLocks(t.Context(), []leaderstore.Lock{ifAsked}); err != nil || len(free) != want {
			t.Fatalf("free to one that waits to be asked: %v, %v; want %d", free, err, want)
		}
	}
	if _, ok := c.take(other); ok {
		t.Fatal("taken by another than the target")
	}
	if _, ok := c.take(b); !ok {
		t.Fatal("not taken by the target")
	}
}

func TestFreeRoleIsKeptFromWhoLeftItUntilAnotherHasLed(t *testing.T) {
	t.Parallel()
	c := pooled(t)
	a, b := c.openLease("a"), c.openLease("b")
	failed, left := lock, lock
	failed.IfAsked, left.IfAsked, left.LeftAt = true, true, 1
	frees := func(try leaderstore.Lock, want int, when string) {
		t.Helper()
		if free, err := a.TryLocks(t.Context(), []leaderstore.Lock{try}); err != nil || len(free) != want {
			t.Fatalf("%s: free %v, %v; want %d", when, free, err, want)
		}
	}
	for term, who := range []*leaderstore.LeaseSession{a, b} {
		if _, ok := c.take(who); !ok {
			t.Fatalf("not taken for term %d", term+1)
		}
		if err := who.Resign(t.Context(), lock, int64(term+1), "stepped_down"); err != nil {
			t.Fatal(err)
		}
		frees(failed, 0, "where its work has failed")
		frees(left, term, "where it stepped down")
	}
}

// No connection's setting reaches through the pooler: the fence itself bounds the
// transaction of a process that freezes.
func TestLeaseFenceBoundsItsTransaction(t *testing.T) {
	t.Parallel()
	c := pooled(t)
	minted, ok := c.take(c.openLease("a"))
	if !ok {
		t.Fatal("a took nothing")
	}
	err := minted.Fence.Do(t.Context(), c.pool, func(tx pgx.Tx, _ time.Time) error {
		var patience string
		err := tx.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&patience)
		if patience != "5min" {
			t.Errorf("patience %q; want the lease", patience)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A change of leadership shows at the look after it, and Wait returns at once
// then.
func TestLeaseWaitTellsOfChanges(t *testing.T) {
	t.Parallel()
	c := pooled(t)
	a, b := c.openLease("a"), c.openLease("b")
	c.take(a)
	if _, ok := c.take(b); ok {
		t.Fatal("b took a role whose lease runs")
	}
	if err := a.Resign(t.Context(), lock, 1, "resigned"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if told, err := b.Wait(ended); err != nil || !told {
		t.Fatalf("b was not told: %v, %v", told, err)
	}
	if told, err := b.Wait(ended); err != nil || told {
		t.Fatalf("b was told twice: %v, %v", told, err)
	}
}
