package migrations_test

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/migrations"
)

// psql makes of the printed migrations what migrate up does, and a later start finds
// nothing to apply.
func TestPrintedMigrationsMakeTheSchema(t *testing.T) {
	t.Parallel()
	address := pgtest.EmptyURL(t)
	var script bytes.Buffer
	if err := migrations.Print(&script); err != nil {
		t.Fatal(err)
	}
	psql := exec.CommandContext(t.Context(), pgtest.Program(t, "psql", "apt-get install postgresql-client"),
		"-X", "-q", "-v", "ON_ERROR_STOP=1", address)
	psql.Stdin = &script
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	pool := pgtest.Connect(t, address)
	if err := newMigrator(pool).Check(t.Context()); err != nil {
		t.Error(err)
	}
	want := pgtest.Pool(t) // migrated by Up
	if diff := cmp.Diff(catalogue(t, want), catalogue(t, pool)); diff != "" {
		t.Errorf("schema (-up +printed):\n%s", diff)
	}
	if diff := cmp.Diff(details(t, want), details(t, pool)); diff != "" {
		t.Errorf("details (-up +printed):\n%s", diff)
	}
	for _, versions := range []string{
		`SELECT version_id::text FROM forge_migrations ORDER BY id`,
		`SELECT line || version FROM river_migration ORDER BY line, version`,
	} {
		if diff := cmp.Diff(column(t, want, versions), column(t, pool, versions)); diff != "" {
			t.Errorf("applied (-up +printed):\n%s", diff)
		}
	}
}
