package leaderstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Through a pooler in transaction mode, a session would hold locks on sessions of other
// clients.
func TestTransactionPoolerIsRejected(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"as installed":                 nil,
		"ignoring startup parameters":  {"ignore_startup_parameters = extra_float_digits, search_path, idle_session_timeout"},
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

// A pooler in session mode works: the server enforces the lease, and the end of a client
// frees the lock.
func TestSessionPoolerIsAccepted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.url = pgtest.StartBouncer(t, c.url, "session").URL()
	a, b := c.open("a"), c.open("b", withLongStandbyTimeout)
	c.win(a)
	if timeout := c.count(`SELECT count(*) FROM forge_leaders l JOIN pg_stat_activity s ON s.pid = l.backend_pid WHERE s.application_name LIKE 'forge:%:a'`); timeout != 1 {
		t.Fatal("the leader's backend is not the one that its row names")
	}
	drain(t, b)
	a.Close()
	c.awaitLock(b)
	second, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{})
	if err != nil || second.Fence.Term != 2 {
		t.Fatalf("second term: %+v, %v", second, err)
	}
	c.silenceLeader(b)
	c.awaitLock(c.open("c"))
}

func TestReplicaIsRejectedWithRemedy(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	_, err := leaderstore.OpenSession(t.Context(), c.config("a"), []string{role})
	if err == nil || !strings.Contains(err.Error(), "default_transaction_read_only is on for user") {
		t.Fatalf("opened on a read-only server: %v", err)
	}
	if errors.Is(err, leaderstore.ErrUnfit) {
		t.Fatal("the error is final, although a standby may be promoted")
	}
}
