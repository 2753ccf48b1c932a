package leaderstore_test

import (
	"errors"
	"math"
	"testing"

	"github.com/forge-scheduler/forge/leaderstore"
)

// Any number but 0 works as a lock id: it can be won, listed, and evicted.
func TestAnyLockIDWorks(t *testing.T) {
	t.Parallel()
	for _, id := range []int64{4856221667890123456, -4856221667890123456, -1, math.MinInt64, math.MaxInt64} {
		own := leaderstore.Lock{Role: role, ID: id}
		c := newCluster(t)
		a, b := c.open("a"), c.standby()
		if !c.tryLock(a, own) || c.tryLock(b, own) {
			t.Fatalf("lock %d does not elect one", id)
		}
		if _, err := a.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); err != nil {
			t.Fatal(err)
		}
		holders, err := leaderstore.New(c.pool).LockHolders(t.Context(), []leaderstore.Lock{own})
		if err != nil || len(holders) != 1 || holders[0].LockID != id || holders[0].PID == 0 || !c.leader().IsHeldBy(holders[0]) {
			t.Errorf("lock %d: held by %+v, %v", id, holders, err)
		}
		c.exec(`UPDATE forge_leaders SET lease_until = clock_timestamp() - interval '1 hour' WHERE role = 'scheduler'`)
		var evictions []leaderstore.Eviction
		until(t, func() bool {
			if c.tryLock(b, own) {
				t.Fatalf("lock %d: won from a holder whose session was not ended", id)
			}
			if evictions, err = b.Evict(t.Context()); err != nil {
				t.Fatal(err)
			}
			return len(evictions) > 0
		})
		if !evictions[0].Ended {
			t.Errorf("lock %d: eviction %+v", id, evictions[0])
		}
	}
}

// Two roles whose locks are the same only in this schema are rejected.
func TestRolesWithSameLockInSchemaAreRejected(t *testing.T) {
	t.Parallel()
	c := newCluster(t).otherSchema("second")
	offset, err := leaderstore.New(c.pool).LockOffset(t.Context())
	if err != nil || offset == 0 {
		t.Fatal(offset, err)
	}
	_, err = c.open("a").TryLocks(t.Context(), []leaderstore.Lock{bySchema(lock), {Role: "billing", ID: bySchema(lock).At(offset).ID}})
	if !errors.Is(err, leaderstore.ErrUnfit) {
		t.Errorf("two roles on one lock: %v", err)
	}
}
