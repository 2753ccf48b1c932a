package forge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/test/nodes"
)

// runNode runs the node a on a database until the test ends.
func runNode(t *testing.T, url, settings string) *Node {
	t.Helper()
	cfg, err := ParseConfig("test", fmt.Sprintf("[database]\nurl = %q\n[http]\nlisten = %q\n[node]\nid = \"a\"\n%s\n",
		url, nodes.AnyPort, settings))
	if err != nil {
		t.Fatal(err)
	}
	node, err := New(cfg, WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return node
}

// A node that waits to apply its file sends heartbeats.
func TestNodeHeartbeatsWhileItsFileIsApplied(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // if the test failed
	if _, err := tx.Exec(t.Context(), `LOCK TABLE forge_config IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	node := runNode(t, url, "[jobs.tidy]\nkind = \"sql\"\nstatement = \"SELECT 1\"")
	eventually(t, "the node has beaten twice", func() bool {
		var beats bool
		return pool.QueryRow(t.Context(), `SELECT last_heartbeat_at > started_at + interval '0.8 s'
			FROM forge_nodes WHERE node_id = 'a'`).Scan(&beats) == nil && beats
	})
	select {
	case <-node.Ready():
		t.Error("the node was ready before its file was applied")
	default:
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-node.Ready():
	case <-time.After(nodes.WaitTimeout):
		t.Error("the node is never ready")
	}
}

// A program that sets an address after it has loaded the configuration gets the error of the
// file: nobody else's browser must reach pages without authentication.
func TestNewRejectsOpenListenerWithoutAuthentication(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		listen, auth string
		ok           bool
	}{
		{":8080", "none", false},
		{"0.0.0.0:8080", "none", false},
		{"", "none", false},
		{":8080", "token", true},
		{"localhost:0", "none", true},
		{"[::1]:0", "none", true},
	} {
		cfg := parsed(t, noDatabase)
		cfg.HTTP.Listen, cfg.Dashboard.Auth = test.listen, test.auth
		node, err := New(cfg)
		if node != nil {
			node.Close()
		}
		if (err == nil) != test.ok || err != nil && !strings.Contains(err.Error(), "http.listen") {
			t.Errorf("%q with auth %q: %v", test.listen, test.auth, err)
		}
	}
}

// A program may run several nodes with one configuration, and set the database itself.
func TestNodesOfOneConfigurationKeepTheirSettings(t *testing.T) {
	t.Parallel()
	const url = "postgres://127.0.0.1:1/none"
	cfg := parsed(t, "")
	cfg.Database.URL = url
	for _, id := range []string{"a", "b"} {
		cfg.Node.ID = id
		node, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		cfg.Node.ID = "c"
		if session := node.sessionConfig(); session.NodeID != id || session.URL != url {
			t.Errorf("node %s elects as %q on %q", id, session.NodeID, session.URL)
		}
	}
}

// A second Run and Close disturb neither a running node nor its jobs, and a node that has run
// or was closed says so.
func TestNodeRunsOnce(t *testing.T) {
	t.Parallel()
	node, stop := startNode(t, parsed(t, localSections(pgtest.URL(t))), &logBuffer{})
	again := func() {
		t.Helper()
		if err := node.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "runs once") {
			t.Errorf("Run again: %v", err)
		}
	}
	select {
	case <-node.Ready():
	case <-time.After(nodes.WaitTimeout):
		t.Fatal("the node is never ready")
	}
	again()
	node.Close()
	if err := node.pool.Ping(t.Context()); err != nil {
		t.Errorf("Close has closed a node that runs: %v", err)
	}
	stop()
	again()
	closed, err := New(parsed(t, noDatabase))
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	node = closed
	again()
}

// A node whose leader_url leads to another database would take the roles there.
func TestLeaderURLOfAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	url, other := pgtest.URL(t), pgtest.URL(t)
	run := func(strategy, leaderURL string) error {
		cfg := parsed(t, localSections(url))
		cfg.Database.LeaderURL, cfg.Cluster.LeaderElection.Strategy = leaderURL, strategy
		node, err := New(cfg, WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), nodes.WaitTimeout)
		defer stop()
		go func() {
			select {
			case <-node.Ready():
				stop()
			case <-ctx.Done():
			}
		}()
		return node.Run(ctx)
	}
	for _, strategy := range []string{"advisory", "lease"} {
		if err := run(strategy, other); err == nil || !strings.Contains(err.Error(), "two databases") {
			t.Errorf("%s: leader_url of another database: %v", strategy, err)
		}
		if err := run(strategy, pgtest.Proxy(t, url).URL()); err != nil {
			t.Errorf("%s: another address of the same database: %v", strategy, err)
		}
	}
	refused, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	refused.User = neturl.UserPassword("forge_nobody", "hunter2")
	if err := run("advisory", refused.String()); !errors.Is(err, postgres.ErrUnreachable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("leader_url with a refused login: %v", err)
	}
}
