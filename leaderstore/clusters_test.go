package leaderstore_test

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/migrations"
)

// beside is another cluster in the same database, in a schema of its own.
func (c *cluster) beside(schema string) *cluster {
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

func (c *cluster) tries(s *leaderstore.Session, lock leaderstore.Lock) bool {
	c.t.Helper()
	won, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
	if err != nil {
		c.t.Fatal(err)
	}
	return len(won) == 1
}

// Clusters in one database have locks of their own, whatever they are called.
func TestClustersInOneDatabaseHaveLocksOfTheirOwn(t *testing.T) {
	t.Parallel()
	first := newCluster(t)
	for _, c := range []*cluster{first, first.beside("second"), first.beside("third")} {
		a, b := c.open("a"), c.open("bb")
		if !c.tries(a, bySchema(lock)) {
			t.Fatalf("no lock for the cluster in schema %q", c.schema)
		}
		if _, err := a.Mint(t.Context(), role, leaderstore.End{}); err != nil {
			t.Fatal(err)
		}
		if c.tries(b, bySchema(lock)) {
			t.Errorf("two nodes of the cluster in schema %q have the lock", c.schema)
		}
		held, err := leaderstore.LockHolders(t.Context(), c.pool, []leaderstore.Lock{lock})
		if err != nil || len(held) != 1 || held[0].Schema != "public" || held[0].Foreign != (c != first) {
			t.Errorf("the seed's lock, seen from schema %q: %+v, %v", c.schema, held, err)
		}
	}
}

// A leader of another cluster that has the same lock is never evicted, however long
// the own role is vacant: it is named.
func TestEvictionSparesTheLeaderOfAnotherCluster(t *testing.T) {
	t.Parallel()
	first := newCluster(t)
	second := first.beside("second")
	a, b := first.open("a"), second.standby()
	first.win(a)
	for _, before := range []string{
		`SELECT`, // nobody has led in the second cluster
		`UPDATE forge_leaders SET term = 3, node_id = 'gone', incarnation = 'ffffffffffffffff', backend_pid = 1,
		     acquired_at = now(), renewed_at = now(), lease_until = now() WHERE role = 'scheduler'`,
	} {
		second.exec(before)
		found := second.evicts(b)
		if found.Ended || found.Refused || found.Schema != "public" || !strings.HasPrefix(found.Holder, "forge:") {
			t.Errorf("found %+v", found)
		}
	}
	if still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err != nil || len(still) != 1 {
		t.Errorf("the first cluster's leader: %v, %v", still, err)
	}
}

// Nodes whose lock ids differ, because one of them was given another file or is of an
// older version, do not lead at the same time: a lock says nothing about a term that
// it did not elect.
func TestNodesWithDifferentLockIDsNeverLeadTogether(t *testing.T) {
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
			if !c.tries(a, other) {
				t.Fatal("a has no lock")
			}
			first, err := a.Mint(t.Context(), role, leaderstore.End{})
			if err != nil {
				t.Fatal(err)
			}
			c.exec(statement)
			if c.tries(b, lock) {
				t.Error("locked in the midst of a term of another lock")
			}
			if _, err := b.Mint(t.Context(), role, leaderstore.End{}); err == nil {
				t.Error("minted in the midst of a term of another lock")
			}
			if err := a.Resign(t.Context(), other, first.Fence.Term, "resigned"); err != nil {
				t.Fatal(err)
			}
			if second := c.win(b); second.Fence.Term != 2 {
				t.Errorf("then: %+v", second)
			}
		})
	}
}

// A cluster that elected before its schema knew of namespaces keeps the lock ids that
// its nodes of older versions have.
func TestUpgradedClusterKeepsItsLockIDs(t *testing.T) {
	t.Parallel()
	c := newCluster(t).beside("older")
	fresh, err := leaderstore.LockOffset(t.Context(), c.pool)
	if err != nil || fresh <= 0 {
		t.Fatalf("a new cluster's offset: %d, %v", fresh, err)
	}
	c.exec(`INSERT INTO forge_leaders (role) VALUES ('scheduler')`)
	text, err := os.ReadFile("../migrations/047_lock_ids.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, down, _ := strings.Cut(string(text), "-- +goose Down")
	c.exec(down)
	c.exec(up)
	if upgraded, err := leaderstore.LockOffset(t.Context(), c.pool); err != nil || upgraded != 0 {
		t.Fatalf("an upgraded cluster's offset: %d, %v", upgraded, err)
	}
	older, s := c.open("older"), c.open("a")
	if !c.tries(older, lock) { // with the only ids that older versions have
		t.Fatal("the older node has no lock")
	}
	if c.tries(s, bySchema(lock)) {
		t.Fatal("a node of each version has the role's lock")
	}
	if err := older.Unlock(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	won, err := s.TryLocks(t.Context(), []leaderstore.Lock{bySchema(lock)})
	if err != nil || len(won) != 1 {
		t.Fatal(won, err)
	}
	held, err := leaderstore.LockHolders(context.WithoutCancel(t.Context()), c.pool, []leaderstore.Lock{lock})
	if err != nil || len(held) != 1 || held[0].Schema != "older" || held[0].Foreign {
		t.Errorf("the seed's lock: %+v, %v", held, err)
	}
	if held[0].User == "" || held[0].Since.IsZero() || time.Since(held[0].Since) > time.Hour {
		t.Errorf("who holds it: %+v", held[0])
	}
}
