package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/migrations"
)

// TestMigrateDown checks that migrate down is refused while a node runs, by its heartbeat or by its
// lock, and while another program leads a role. A crashed node does not prevent it. The output says
// what is lost.
func TestMigrateDown(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte("[database]\nurl = \""+address+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	down := func(want int, says string, flags ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"migrate", "down", "--config", path}, flags...), &out, &errs)
		if code != want || !strings.Contains(out.String()+errs.String(), says) {
			t.Errorf("exit %d, want %d with %q: %s%s", code, want, says, out.String(), errs.String())
		}
	}
	before := newest(t, pool)

	execAll(t, pool, `INSERT INTO forge_nodes (node_id, incarnation, hostname, pid) VALUES ('a', '0123456789abcdef', 'one', 12)`)
	down(exitConflict, "these need the schema as it is: node a (process 12 on one); stop them first", "--yes")
	execAll(t, pool, `UPDATE forge_nodes SET last_heartbeat_at = now() - interval '1 minute', state = 'dead'`)
	down(exitUsage, "use --yes")

	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	class, object := nodestore.SessionLock("0123456789abcdef")
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock($1, $2)`, class, object); err != nil {
		t.Fatal(err)
	}
	down(exitConflict, "node a (process 12 on one)", "--yes")
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
	conn.Release()

	execAll(t, pool, `INSERT INTO forge_leaders (role, node_id, term, lease_until) VALUES ('import', 'host-7', 1, now() + interval '1 minute')`)
	down(exitConflict, "host-7, which leads import", "--yes")
	execAll(t, pool, `UPDATE forge_leaders SET lease_until = now()`)
	if after := newest(t, pool); after != before {
		t.Fatalf("a refused migrate down rolled back %d", before)
	}

	for newest(t, pool) > 63 { // whatever is newer, and then the baseline
		down(exitOK, "rolled back forge", "--yes")
	}
	execAll(t, pool, `INSERT INTO forge_silences (alert, until, created_by) VALUES ('late', now(), 'me')`)
	down(exitUsage, "063_baseline.sql: rolling it back loses:\n  table forge_idempotency_keys (0 rows)\n")
	down(exitUsage, "  table forge_silences (1 row)\n")
	for newest(t, pool) > 0 {
		down(exitOK, "rolled back forge 63 063_baseline.sql", "--yes")
	}
	down(exitOK, "no migration of forge is applied", "--yes")
	execAll(t, pool, `INSERT INTO forge_migrations (version_id, is_applied) VALUES (62, true)`)
	down(exitFailed, "too old for this binary", "--yes")
}

func newest(t *testing.T, pool *pgxpool.Pool) (version int64) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT max(version_id) FROM forge_migrations`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	return version
}

func execAll(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// TestMigrationsAreDocuments checks that programs can read what was applied and rolled back.
func TestMigrationsAreDocuments(t *testing.T) {
	t.Parallel()
	path := fileWith(t, "[database]\nurl = \""+pgtest.URL(t)+"\"\n")
	migrate := func(want int, document any, line ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"migrate", "--config", path, "-o", "json"}, line...), &out, &errs)
		if err := json.Unmarshal(out.Bytes(), document); err != nil || code != want {
			t.Fatalf("forge migrate %q: exit %d, want %d; %v: %s%s", line, code, want, err, &out, &errs)
		}
	}
	var applied []migrations.Step
	if migrate(exitOK, &applied, "up"); len(applied) > 0 {
		t.Errorf("applied again: %+v", applied)
	}
	var back rollback
	if migrate(exitUsage, &back, "down"); back.RolledBack || back.Version == 0 {
		t.Errorf("without --yes: %+v", back)
	}
	if migrate(exitOK, &back, "down", "--yes"); !back.RolledBack {
		t.Errorf("with --yes: %+v", back)
	}
	if migrate(exitOK, &applied, "up"); len(applied) != 1 || applied[0].Version != back.Version || !applied[0].Applied {
		t.Errorf("applied %+v after %+v", applied, back)
	}
}
