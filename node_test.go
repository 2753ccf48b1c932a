package forge

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
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
