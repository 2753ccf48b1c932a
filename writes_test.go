package forge

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// A node is not ready while the server rejects its writes, and ready again afterwards. A
// broken connection is left to the ping.
func TestNodeIsNotReadyWhileItCannotWrite(t *testing.T) {
	t.Parallel()
	n := &Node{metrics: metrics.New(""), pool: pgtest.Pool(t), logger: slog.New(slog.DiscardHandler)}
	n.readiness.setReady()
	var result error
	n.writes = n.newWriteCheck()
	n.writes.probe = func(context.Context) error { return result }
	for _, step := range []struct {
		name   string
		result error
		ready  bool
		shown  float64
	}{
		{"no error", nil, true, 1},
		{"the disk is full", &postgres.DiskError{}, false, 0},
		{"the connection breaks meanwhile", errors.New("broken"), false, 0},
		{"the disk has space again", nil, true, 1},
		{"the connection breaks", errors.New("broken"), true, 0},
		{"rights are revoked", &postgres.RightsError{}, false, 0},
		{"it is read-only", postgres.ErrWritesRejected, false, 0},
	} {
		result = step.result
		n.writes.check(t.Context())
		err := n.ready(t.Context())
		if shown := testutil.ToFloat64(n.metrics.NodeReady); (err == nil) != step.ready || shown != step.shown {
			t.Errorf("%s: ready returned %v, forge_node_ready %v", step.name, err, shown)
		}
	}
}

// Privileges that are revoked while a node runs make it unready. It is ready again once
// they are granted. A missing table also makes it unready.
func TestRevokedPrivilegesMakeNodeUnready(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	owner := pgtest.Connect(t, address)
	exec := func(sql string) {
		t.Helper()
		if _, err := owner.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var user string
	if err := owner.QueryRow(t.Context(), `SELECT 'node_' || current_database()`).Scan(&user); err != nil {
		t.Fatal(err)
	}
	exec(`CREATE ROLE ` + user + ` LOGIN PASSWORD 'node'`)
	t.Cleanup(func() { exec(`DROP OWNED BY ` + user); exec(`DROP ROLE ` + user) })
	exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ` + user)
	exec(`GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ` + user)
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	parsed.User = url.UserPassword(user, "node")
	node := runNode(t, parsed.String(), "")
	<-node.Ready()
	if err := node.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(`REVOKE UPDATE ON river_job FROM ` + user)
	node.writes.check(t.Context())
	if lacks, ok := errors.AsType[*postgres.RightsError](node.ready(t.Context())); !ok || len(lacks.Missing) != 1 {
		t.Errorf("after the rights were revoked: %v", node.ready(t.Context()))
	}
	exec(`GRANT UPDATE ON river_job TO ` + user)
	node.writes.check(t.Context())
	if err := node.ready(t.Context()); err != nil {
		t.Errorf("after the rights were granted again: %v", err)
	}
	exec(`ALTER TABLE river_job RENAME TO gone`)
	node.writes.check(t.Context())
	if _, ok := errors.AsType[*postgres.TablesError](node.ready(t.Context())); !ok {
		t.Errorf("without river_job: %v", node.ready(t.Context()))
	}
}
