package leaderstore_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/leaderstore"
)

// frozenLeader returns a silent leader on a session that the server does not end.
func (c *cluster) frozenLeader() *leaderstore.Session {
	c.t.Helper()
	a := c.open("a")
	c.win(a)
	c.shortenLease()
	return a
}

// standby returns a standby that evicts after a short lease, on a session that the server
// does not end even if the test is slow.
func (c *cluster) standby(change ...func(*leaderstore.SessionConfig)) *leaderstore.Session {
	c.t.Helper()
	b := c.open("b", change...)
	b.SetTimes(lease, lease/4)
	return b
}

// awaitEviction tries the lock as a standby does until there is an eviction.
func (c *cluster) awaitEviction(s *leaderstore.Session) leaderstore.Eviction {
	c.t.Helper()
	var evictions []leaderstore.Eviction
	until(c.t, func() bool {
		won, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
		if err != nil || len(won) != 0 {
			c.t.Fatalf("won %v, %v from a holder whose session was not ended", won, err)
		}
		if evictions, err = s.Evict(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
		return len(evictions) > 0
	})
	return evictions[0]
}

func TestSilentLeaderIsEvicted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.frozenLeader(), c.standby()
	began := time.Now()
	evicted := c.awaitEviction(b)
	if !evicted.Ended || evicted.Term != 1 || evicted.PID == 0 {
		t.Fatalf("eviction: %+v", evicted)
	}
	if took := time.Since(began); took < lease*9/10 {
		t.Errorf("evicted after %v of a lease of %v", took, lease)
	}
	b.SetTimes(longLease, time.Second)
	c.awaitLock(b)
	second, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{})
	if err != nil || second.Fence.Term != 2 || !second.Failover || second.Gap < lease {
		t.Fatalf("second term: %+v, %v", second, err)
	}
	if ended := c.history()[1]; ended.EndReason != "evicted" || ended.EndedAt.Before(ended.AcquiredAt) {
		t.Errorf("ended term: %+v", ended)
	}
	if n := c.count(`SELECT count(*) FROM forge_events WHERE type = 'leader_lost' AND term = 1 AND data ->> 'reason' = 'evicted'`); n != 1 {
		t.Errorf("%d events", n)
	}
	if _, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err == nil {
		t.Error("the evicted leader could still renew")
	}
}

// A leader that renews is not evicted, even if its lease has expired by the database's
// clock.
func TestRenewingLeaderIsNotEvicted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.standby()
	c.win(a)
	for began := time.Now(); time.Since(began) < lease*2; {
		if still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err != nil || len(still) != 1 {
			t.Fatalf("renewed %v, %v", still, err)
		}
		c.exec(`UPDATE forge_leaders SET lease_until = clock_timestamp() - interval '1 hour' WHERE role = 'scheduler'`)
		if _, err := b.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil {
			t.Fatal(err)
		}
		if evictions, err := b.Evict(t.Context()); err != nil || len(evictions) != 0 {
			t.Fatalf("evicted %+v, %v", evictions, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A renewal during the eviction prevents it.
func TestLateRenewalPreventsEviction(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.frozenLeader(), c.standby()
	for began := time.Now(); time.Since(began) < lease*2; time.Sleep(20 * time.Millisecond) {
		if _, err := b.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil {
			t.Fatal(err)
		}
	}
	c.exec(`UPDATE forge_leaders SET lease_until = clock_timestamp() + interval '1 hour' WHERE role = 'scheduler'`)
	if evictions, err := b.Evict(t.Context()); err != nil || len(evictions) != 0 {
		t.Fatalf("evicted %+v, %v", evictions, err)
	}
	if still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err != nil || len(still) != 1 {
		t.Fatalf("renewed %v, %v", still, err)
	}
}

func TestOtherApplicationIsNotEvicted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	other, err := pgx.Connect(t.Context(), c.url+"&application_name=payroll")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	if _, err := other.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, lock.ID); err != nil {
		t.Fatal(err)
	}
	found := c.awaitEviction(c.standby())
	if found.Ended || found.Refused || found.Holder != "payroll" || found.PID != int(other.PgConn().PID()) {
		t.Errorf("found %+v", found)
	}
	if err := other.Ping(t.Context()); err != nil {
		t.Errorf("the other application's session: %v", err)
	}
}

func TestEvictionWithoutPrivilegeIsReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	weak := "weak_" + strings.ToLower(rand.Text())
	c.exec(`CREATE ROLE ` + weak + ` LOGIN PASSWORD 'x'; GRANT ALL ON ALL TABLES IN SCHEMA public TO ` + weak)
	t.Cleanup(func() {
		if _, err := c.pool.Exec(context.Background(), `DROP OWNED BY `+weak+`; DROP ROLE `+weak); err != nil {
			t.Error(err)
		}
	})
	c.frozenLeader() // as the owner of the database
	address, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(weak, "x")
	b := c.standby(func(cfg *leaderstore.SessionConfig) { cfg.URL = address.String() })
	if found := c.awaitEviction(b); !found.Refused || found.Ended || found.Term != 1 {
		t.Errorf("found %+v", found)
	}
	if leader := c.leader(); leader.NodeID != "a" || leader.Term != 1 {
		t.Errorf("row: %+v", leader)
	}
	b.Close()
}
