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

// newPooledCluster returns a cluster behind a pooler in transaction mode that has fewer
// connections than clients.
func newPooledCluster(t *testing.T) *cluster {
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

// take tries to acquire the role. It returns false if the role is not free.
func (c *cluster) take(s *leaderstore.LeaseSession) (leaderstore.AcquiredTerm, bool) {
	c.t.Helper()
	free, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(free) == 0 {
		return leaderstore.AcquiredTerm{}, false
	}
	acquired, err := s.AcquireTerm(c.t.Context(), role, leaderstore.SessionEnd{})
	if errors.Is(err, leaderstore.ErrBusy) {
		return leaderstore.AcquiredTerm{}, false
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return acquired, true
}

// lease is short enough to wait for.
const lease = 500 * time.Millisecond

// shortenLease makes the leader's lease expire soon. The sessions themselves have a longer
// lease, so that the server does not end those of a slow test.
func (c *cluster) shortenLease() {
	c.t.Helper()
	c.exec(`UPDATE forge_leaders SET renewed_at = clock_timestamp(), lease_until = clock_timestamp() + interval '500 ms' WHERE role = 'scheduler'`)
}

func TestLeaseElectsThroughTransactionPooler(t *testing.T) {
	t.Parallel()
	c := newPooledCluster(t)
	a, b := c.openLease("a"), c.openLease("b")
	first, ok := c.take(a)
	if !ok || first.Fence.Term != 1 {
		t.Fatalf("a did not acquire the role: %+v", first)
	}
	held := []leaderstore.Held{{Role: role, Term: 1}}
	for range 10 { // on any server connection
		if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 1 {
			t.Fatalf("renewed %v, %v", still, err)
		}
		if _, ok := c.take(b); ok {
			t.Fatal("b acquired the role before the lease expired")
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
	second, ok := c.take(b) // at once, without waiting for the lease
	if !ok || second.Fence.Term != 2 || !second.Failover {
		t.Fatalf("after a resigned: %+v, %v", second, ok)
	}
	if ended := c.history()[1]; ended.EndReason != "resigned" {
		t.Fatalf("ended term: %+v", ended)
	}
}

// A process that has ended or is frozen keeps the role until its lease expires, and no
// longer. Wait returns then.
func TestExpiredLeaseFreesRole(t *testing.T) {
	t.Parallel()
	c := newPooledCluster(t)
	a, b := c.openLease("a"), c.openLease("b")
	if _, ok := c.take(a); !ok {
		t.Fatal("a did not acquire the role")
	}
	if _, ok := c.take(b); ok {
		t.Fatal("b acquired the role before the lease expired")
	}
	began := time.Now()
	c.shortenLease()
	if _, ok := c.take(b); !ok { // not free yet, unless the test is slow
		waiting, cancel := context.WithTimeout(t.Context(), nodes.WaitTimeout)
		defer cancel()
		if notified, err := b.Wait(waiting); err != nil || !notified {
			t.Fatalf("Wait did not report the expired lease to b: %v, %v", notified, err)
		}
		if _, ok := c.take(b); !ok {
			t.Fatal("b did not acquire the role after the lease expired")
		}
	}
	if took := time.Since(began); took < lease*9/10 {
		t.Fatalf("taken over after %v of a lease of %v", took, lease)
	}
	if ended := c.history()[1]; ended.EndReason != "lease_expired" {
		t.Fatalf("ended term: %+v", ended)
	}
	if still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err != nil || len(still) != 0 {
		t.Fatalf("the first leader could still renew: %v, %v", still, err)
	}
}

// A term ends with its lease even if no other node has acquired the role.
func TestExpiredLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	c := newPooledCluster(t)
	a := c.openLease("a")
	if _, ok := c.take(a); !ok {
		t.Fatal("a did not acquire the role")
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

func TestOneOfManyAcquiresFreeRole(t *testing.T) {
	t.Parallel()
	c := newPooledCluster(t)
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
		together.Go(func() { _, errs[i] = s.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}) })
	}
	together.Wait()
	acquired := 0
	for _, err := range errs {
		switch {
		case err == nil:
			acquired++
		case !errors.Is(err, leaderstore.ErrBusy):
			t.Errorf("a node that lost got %v", err)
		}
	}
	if acquired != 1 {
		t.Errorf("%d terms were acquired", acquired)
	}
}

// While a cluster changes its strategy node by node, a term won by lease alone is not taken
// by lock, and a term won by lock is not taken during its lease.
func TestLeaseAndLockStrategiesExcludeEachOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	byLock, byLease := c.open("a"), c.openLease("b")
	c.win(byLock)
	if _, ok := c.take(byLease); ok {
		t.Fatal("acquired the role of a leader that holds the lock")
	}
	if err := byLock.Resign(t.Context(), lock, 1, "resigned"); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.take(byLease); !ok {
		t.Fatal("a vacant role was not acquired")
	}
	if won, err := byLock.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil || len(won) != 0 {
		t.Fatalf("won %v, %v during a lease", won, err)
	}
	if _, err := byLock.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); !errors.Is(err, leaderstore.ErrBusy) {
		t.Fatalf("acquired a term during a lease: %v", err)
	}
	c.exec(`UPDATE forge_leaders SET lease_until = clock_timestamp()`)
	if third := c.win(byLock); third.Fence.Term != 3 {
		t.Fatalf("after the lease: %+v", third)
	}
}

func TestReservedRoleIsNotFree(t *testing.T) {
	t.Parallel()
	c := newPooledCluster(t)
	a, b, other := c.openLease("a"), c.openLease("b"), c.openLease("c")
	onRequest := lock
	onRequest.OnlyOnRequest = true
	if free, err := b.TryLocks(t.Context(), []leaderstore.Lock{onRequest}); err != nil || len(free) != 0 {
		t.Fatalf("free without a request: %v, %v", free, err)
	}
	if _, ok := c.take(a); !ok {
		t.Fatal("a did not acquire the role")
	}
	if err := leaderstore.New(c.pool).Request(t.Context(), role, 1, "b"); err != nil {
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
	for session, want := range map[*leaderstore.LeaseSession]int{other: 0, b: 1} {
		if free, err := session.TryLocks(t.Context(), []leaderstore.Lock{onRequest}); err != nil || len(free) != want {
			t.Fatalf("free for a node in back-off: %v, %v; want %d", free, err, want)
		}
	}
	if _, ok := c.take(other); ok {
		t.Fatal("acquired by a node that is not the target")
	}
	if _, ok := c.take(b); !ok {
		t.Fatal("not acquired by the target")
	}
}

func TestLeaseBackOffLastsUntilAnotherNodeHasLed(t *testing.T) {
	t.Parallel()
	c := newPooledCluster(t)
	a, b := c.openLease("a"), c.openLease("b")
	failed, left := lock, lock
	failed.OnlyOnRequest, left.OnlyOnRequest, left.HandedOverTerm = true, true, 1
	frees := func(try leaderstore.Lock, want int, when string) {
		t.Helper()
		if free, err := a.TryLocks(t.Context(), []leaderstore.Lock{try}); err != nil || len(free) != want {
			t.Fatalf("%s: free %v, %v; want %d", when, free, err, want)
		}
	}
	for term, session := range []*leaderstore.LeaseSession{a, b} {
		if _, ok := c.take(session); !ok {
			t.Fatalf("term %d was not acquired", term+1)
		}
		if err := session.Resign(t.Context(), lock, int64(term+1), "stepped_down"); err != nil {
			t.Fatal(err)
		}
		frees(failed, 0, "after failed work")
		frees(left, term, "after a step-down")
	}
}

// Session settings do not work through the pooler, so the fence itself limits the
// transaction of a process that freezes.
func TestLeaseFenceSetsTransactionIdleTimeout(t *testing.T) {
	t.Parallel()
	c := newPooledCluster(t)
	acquired, ok := c.take(c.openLease("a"))
	if !ok {
		t.Fatal("a did not acquire the role")
	}
	err := acquired.Fence.Do(t.Context(), c.pool, func(tx pgx.Tx, _ time.Time) error {
		var timeout string
		err := tx.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&timeout)
		if timeout != "5min" {
			t.Errorf("idle timeout %q; want the lease", timeout)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// After a check that found another leader, Wait returns at once.
func TestLeaseWaitReturnsOnLeaderChange(t *testing.T) {
	t.Parallel()
	c := newPooledCluster(t)
	a, b := c.openLease("a"), c.openLease("b")
	c.take(a)
	if _, ok := c.take(b); ok {
		t.Fatal("b acquired the role before the lease expired")
	}
	if err := a.Resign(t.Context(), lock, 1, "resigned"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if changed, err := b.Wait(ended); err != nil || !changed {
		t.Fatalf("Wait did not report the change: %v, %v", changed, err)
	}
	if changed, err := b.Wait(ended); err != nil || changed {
		t.Fatalf("Wait reported the change twice: %v, %v", changed, err)
	}
}
