package migrations_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Tokens that somebody made whom nobody had asked who they are end with the upgrade,
// and names of the audit log are taken from those that have them.
func TestTokensOfNobodyEnd(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := newMigrator(pool)
	takeBack(t, pool, m, 50)
	mustExec(t, pool, `
		INSERT INTO forge_tokens (name, hash, scope, created_by) VALUES
		('open', sha256('1'), 'admin', 'the API from 127.0.0.1'),
		('by-token', sha256('2'), 'admin', 'ops through the API from 10.0.0.1'),
		('by-command', sha256('3'), 'admin', 'ann@web-1'),
		('anonymous', sha256('4'), 'viewer', 'ann@web-1')`)
	mustExec(t, pool, `INSERT INTO forge_idempotency_keys (caller, key, digest) VALUES ('by-token', 'k', sha256('k')), ('anonymous', 'k', sha256('k'))`)
	mustUp(t, m)
	rows, err := pool.Query(t.Context(), `SELECT name || ' ' || (revoked_at IS NULL) FROM forge_tokens ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"open false", "by-token true", "by-command true", "anonymous-token-4 true"}, got); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	var keys string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(caller, ' ' ORDER BY caller) FROM forge_idempotency_keys`).Scan(&keys); err != nil || keys != "anonymous token:2" {
		t.Errorf("the keys are of %s, %v", keys, err)
	}
}
