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

// frozen leads and says nothing more, on a session that the server does not end.
func (c *cluster) frozen() *leaderstore.Session {
	c.t.Helper()
	a := c.open("a")
	c.win(a)
	c.shorten()
	return a
}

// standby evicts after a short lease, on a session that the server does not end,
// however slow the test is.
func (c *cluster) standby(change ...func(*leaderstore.SessionConfig)) *leaderstore.Session {
	c.t.Helper()
	b := c.open("b", change...)
	b.Heed(lease, lease/4)
	return b
}

// evicts tries the lock as a standby does until something becomes of its holder.
func (c *cluster) evicts(s *leaderstore.Session) leaderstore.Eviction {
	c.t.Helper()
	var evictions []leaderstore.Eviction
	until(c.t, func() bool {
		won, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
		if err != nil || len(won) != 0 {
			c.t.Fatalf("won %v, %v from a holder that nobody has ended", won, err)
		}
		if evictions, err = s.Evict(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
		return len(evictions) > 0
	})
	return evictions[0]
}

func TestEvictionEndsALeaderThatTheServerKeeps(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.frozen(), c.standby()
	began := time.Now()
	evicted := c.evicts(b)
	if !evicted.Ended || evicted.Term != 1 || evicted.PID == 0 {
		t.Fatalf("eviction: %+v", evicted)
	}
	if took := time.Since(began); took < lease*9/10 {
		t.Errorf("evicted after %v of a lease of %v", took, lease)
	}
	b.Heed(calm, time.Second)
	c.awaitLock(b)
	second, err := b.Mint(t.Context(), role, leaderstore.End{})
	if err != nil || second.Fence.Term != 2 || !second.Failover || second.Gap < lease {
		t.Fatalf("second term: %+v, %v", second, err)
	}
	if ended := c.history()[1]; ended.EndReason != "evicted" || ended.EndedAt.Before(ended.AcquiredAt) {
		t.Errorf("ended tenure: %+v", ended)
	}
	if n := c.count(`SELECT count(*) FROM forge_events WHERE type = 'leader_lost' AND term = 1 AND data ->> 'reason' = 'evicted'`); n != 1 {
		t.Errorf("%d events", n)
	}
	if _, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err == nil {
		t.Error("the evicted leader could still renew")
	}
}

// A leader that renews is left alone, also when the database's clock says that its
// lease is over.
func TestEvictionSparesWhoeverRenews(t *testing.T) {
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

// The renewal that comes at the last moment counts.
func TestEvictionLooksOnceMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.frozen(), c.standby()
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

func TestEvictionLeavesOtherApplicationsAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	stranger, err := pgx.Connect(t.Context(), c.url+"&application_name=payroll")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Close(context.Background()) })
	if _, err := stranger.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, lock.ID); err != nil {
		t.Fatal(err)
	}
	found := c.evicts(c.standby())
	if found.Ended || found.Refused || found.Holder != "payroll" || found.PID != int(stranger.PgConn().PID()) {
		t.Errorf("found %+v", found)
	}
	if err := stranger.Ping(t.Context()); err != nil {
		t.Errorf("the other application's session: %v", err)
	}
}

func TestEvictionWithoutTheRight(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	weak := "weak_" + strings.ToLower(rand.Text())
	c.exec(`CREATE ROLE ` + weak + ` LOGIN PASSWORD 'x'; GRANT ALL ON ALL TABLES IN SCHEMA public TO ` + weak)
	t.Cleanup(func() {
		if _, err := c.pool.Exec(context.Background(), `DROP OWNED BY `+weak+`; DROP ROLE `+weak); err != nil {
			t.Error(err)
		}
	})
	c.frozen() // as the owner
	address, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(weak, "x")
	b := c.standby(func(cfg *leaderstore.SessionConfig) { cfg.URL = address.String() })
	if found := c.evicts(b); !found.Refused || found.Ended || found.Term != 1 {
		t.Errorf("found %+v", found)
	}
	if leader := c.leader(); leader.NodeID != "a" || leader.Term != 1 {
		t.Errorf("row: %+v", leader)
	}
	b.Close()
}
