package forge

import (
	"errors"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

func TestFencedNodeGetsNoNewConnection(t *testing.T) {
	t.Parallel()
	const incarnation = "00000000000000aa"
	url := pgtest.URL(t)
	admin := pgtest.Connect(t, url)
	if _, err := admin.Exec(t.Context(), `INSERT INTO forge_nodes (node_id, incarnation) VALUES ('a', $1)`, incarnation); err != nil {
		t.Fatal(err)
	}
	check := &admission{}
	connect := func() error {
		pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: url, Schema: "public", Admit: check.check(incarnation)})
		if err != nil {
			return err
		}
		defer pool.Close()
		return pool.Ping(t.Context())
	}
	if err := connect(); err != nil {
		t.Fatalf("before the node joined: %v", err)
	}
	check.joined.Store(true)
	if err := connect(); err != nil {
		t.Fatalf("a member: %v", err)
	}
	if _, err := admin.Exec(t.Context(), `UPDATE forge_nodes SET fenced_at = now()`); err != nil {
		t.Fatal(err)
	}
	if err := connect(); !errors.Is(err, ErrFenced) {
		t.Fatalf("a fenced node was admitted: %v", err)
	}
}
