package leaderstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// A session through a pooler in transaction mode would hold locks of other
// people's sessions.
func TestTransactionPoolerIsRefused(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"as installed":                 nil,
		"swallowing what it is told":   {"ignore_startup_parameters = extra_float_digits, search_path, idle_session_timeout"},
		"with one connection to share": {"default_pool_size = 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.url = pgtest.StartBouncer(t, c.url, "transaction", settings...).URL()
			_, err := leaderstore.OpenSession(t.Context(), c.config("a"), []string{role})
			if !errors.Is(err, leaderstore.ErrUnfit) {
				t.Fatalf("opened through a pooler in transaction mode: %v", err)
			}
			for _, remedy := range []string{"database.leader_url", `strategy = "lease"`} {
				if !strings.Contains(err.Error(), remedy) {
					t.Errorf("%q does not name %s", err, remedy)
				}
			}
			if n := c.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 0 {
				t.Errorf("%d locks were left on the pooler's sessions", n)
			}
		})
	}
}

// Through a pooler in session mode a session is what it should be: the server
// enforces the lease, and an ended client frees the lock.
func TestSessionPoolerServes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.url = pgtest.StartBouncer(t, c.url, "session").URL()
	a, b := c.open("a"), c.open("b", patient)
	c.win(a)
	if patience := c.count(`SELECT count(*) FROM forge_leaders l JOIN pg_stat_activity s ON s.pid = l.backend_pid WHERE s.application_name LIKE 'forge:%:a'`); patience != 1 {
		t.Fatal("the leader's backend is not the one that its row names")
	}
	drain(t, b)
	a.Close()
	c.awaitLock(b)
	second, err := b.Mint(t.Context(), role, leaderstore.End{})
	if err != nil || second.Fence.Term != 2 {
		t.Fatalf("second term: %+v, %v", second, err)
	}
	c.fallSilent(b)
	c.awaitLock(c.open("c"))
}

func TestReplicaIsRefusedWithTheRemedy(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	_, err := leaderstore.OpenSession(t.Context(), c.config("a"), []string{role})
	if err == nil || !strings.Contains(err.Error(), "default_transaction_read_only is on for user") {
		t.Fatalf("opened on a server that takes no writes: %v", err)
	}
	if errors.Is(err, leaderstore.ErrUnfit) {
		t.Fatal("given up for good, though a standby may be promoted")
	}
}
