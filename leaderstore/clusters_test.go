package leaderstore_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/migrations"
)

// otherSchema returns another cluster in the same database, in its own schema.
func (c *cluster) otherSchema(schema string) *cluster {
	c.t.Helper()
	c.exec(`CREATE SCHEMA ` + schema)
	address, err := url.Parse(c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	query := address.Query()
	query.Set("search_path", schema)
	address.RawQuery = query.Encode()
	other := &cluster{t: c.t, url: address.String(), schema: schema}
	other.pool = pgtest.Connect(c.t, other.url)
	if err := migrations.New(other.pool, slog.New(slog.DiscardHandler)).Up(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return other
}

func bySchema(cfg leaderstore.Lock) leaderstore.Lock {
	cfg.BySchema = true
	return cfg
}

func (c *cluster) tryLock(s *leaderstore.Session, lock leaderstore.Lock) bool {
	c.t.Helper()
	won, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
	if err != nil {
		c.t.Fatal(err)
	}
	return len(won) == 1
}

// Clusters in one database use different locks, whatever the schemas are called.
func TestClustersInOneDatabaseUseDifferentLocks(t *testing.T) {
	t.Parallel()
	first := newCluster(t)
	for _, c := range []*cluster{first, first.otherSchema("second"), first.otherSchema("third")} {
		a, b := c.open("a"), c.open("bb")
		if !c.tryLock(a, bySchema(lock)) {
			t.Fatalf("no lock for the cluster in schema %q", c.schema)
		}
		if _, err := a.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); err != nil {
			t.Fatal(err)
		}
		if c.tryLock(b, bySchema(lock)) {
			t.Errorf("two nodes of the cluster in schema %q have the lock", c.schema)
		}
		held, err := leaderstore.New(c.pool).LockHolders(t.Context(), []leaderstore.Lock{lock})
		if err != nil || len(held) != 1 || held[0].Schema != "public" || held[0].Foreign != (c != first) {
			t.Errorf("holders of the scheduler's lock in schema %q: %+v, %v", c.schema, held, err)
		}
	}
}

// A leader of another cluster with the same lock is never evicted, even if the role has
// long been vacant. It is reported.
func TestLeaderOfAnotherClusterIsNotEvicted(t *testing.T) {
	t.Parallel()
	first := newCluster(t)
	second := first.otherSchema("second")
	a, b := first.open("a"), second.standby()
	first.win(a)
	for _, before := range []string{
		`SELECT`, // the second cluster never had a leader
		`UPDATE forge_leaders SET term = 3, node_id = 'gone', incarnation = 'ffffffffffffffff', backend_pid = 1,
		     acquired_at = now(), renewed_at = now(), lease_until = now() WHERE role = 'scheduler'`,
	} {
		second.exec(before)
		found := second.awaitEviction(b)
		if found.Ended || found.Refused || found.Schema != "public" || !strings.HasPrefix(found.Holder, "forge:") {
			t.Errorf("found %+v", found)
		}
	}
	if still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err != nil || len(still) != 1 {
		t.Errorf("the first cluster's leader: %v, %v", still, err)
	}
}

// Nodes with different lock ids, because of different configuration files or an older
// version, do not lead at the same time: a lock does not prove that a term has ended that
// was not won with this lock.
func TestNodesWithDifferentLockIDsDoNotLeadTogether(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"another id":       `SELECT`,
		"an older version": `UPDATE forge_leader_history SET lock_id = NULL`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a, b := c.open("a"), c.open("bb")
			other := lock
			other.ID += 1 << 56
			if !c.tryLock(a, other) {
				t.Fatal("a has no lock")
			}
			first, err := a.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{})
			if err != nil {
				t.Fatal(err)
			}
			c.exec(statement)
			if c.tryLock(b, lock) {
				t.Error("won the lock during a term of another lock")
			}
			if _, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); err == nil {
				t.Error("acquired a term during a term of another lock")
			}
			if err := a.Resign(t.Context(), other, first.Fence.Term, "resigned"); err != nil {
				t.Fatal(err)
			}
			if second := c.win(b); second.Fence.Term != 2 {
				t.Errorf("second term: %+v", second)
			}
		})
	}
}

// A cluster that held elections before its schema had a lock offset keeps the lock ids of
// its nodes of older versions.
func TestUpgradedClusterKeepsItsLockIDs(t *testing.T) {
	t.Parallel()
	c := newCluster(t).otherSchema("older")
	fresh, err := leaderstore.New(c.pool).LockOffset(t.Context())
	if err != nil || fresh <= 0 {
		t.Fatalf("a new cluster's offset: %d, %v", fresh, err)
	}
	c.exec(`INSERT INTO forge_leaders (role) VALUES ('scheduler')`)
	c.exec(`CREATE OR REPLACE FUNCTION forge_lock_offset() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 0::bigint'`) // as migration 47 made it there
	if upgraded, err := leaderstore.New(c.pool).LockOffset(t.Context()); err != nil || upgraded != 0 {
		t.Fatalf("an upgraded cluster's offset: %d, %v", upgraded, err)
	}
	older, s := c.open("older"), c.open("a")
	if !c.tryLock(older, lock) { // the only ids of older versions
		t.Fatal("the older node has no lock")
	}
	if c.tryLock(s, bySchema(lock)) {
		t.Fatal("a node of each version has the role's lock")
	}
	if err := older.Unlock(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	won, err := s.TryLocks(t.Context(), []leaderstore.Lock{bySchema(lock)})
	if err != nil || len(won) != 1 {
		t.Fatal(won, err)
	}
	held, err := leaderstore.New(c.pool).LockHolders(context.WithoutCancel(t.Context()), []leaderstore.Lock{lock})
	if err != nil || len(held) != 1 || held[0].Schema != "older" || held[0].Foreign {
		t.Errorf("holders of the lock: %+v, %v", held, err)
	}
	if held[0].User == "" || held[0].Since.IsZero() || time.Since(held[0].Since) > time.Hour {
		t.Errorf("the lock's holder: %+v", held[0])
	}
}
