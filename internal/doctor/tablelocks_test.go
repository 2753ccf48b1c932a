package doctor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// lockTables locks tables in a transaction that ends with the test at the latest.
func lockTables(t *testing.T, pool *pgxpool.Pool, sql string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return tx
}

// A table that another session has locked hangs neither forge doctor nor its search for the session.
func TestLockedTableNamesTheSession(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	tx := lockTables(t, pgtest.Connect(t, address), `LOCK TABLE river_job IN ACCESS EXCLUSIVE MODE`)
	began := time.Now()
	findings := examine(t, configFor(address))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("forge doctor took %s", took)
	}
	demand(t, findings, "connection", Fail, "lock timeout")
	pid := tx.Conn().PgConn().PID()
	demand(t, findings, "table locks", Fail, fmt.Sprintf("process %d (user ", pid), "has locked river_job", fmt.Sprintf("pg_terminate_backend(%d)", pid))
}

// A lock that only writers wait for does not stop forge doctor from reading.
func TestLockThatKeepsWritersOut(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	tx := lockTables(t, pool, `LOCK TABLE forge_nodes, river_job IN SHARE MODE`)
	demand(t, examine(t, configFor(address)), "table locks", OK)
	waited := make(chan error, 1)
	go func() {
		_, err := pool.Exec(t.Context(), `UPDATE forge_nodes SET reserved = reserved`)
		waited <- err
	}()
	const waitsSQL = `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'forge_nodes'::regclass
		AND waitstart < clock_timestamp() - interval '1 second')`
	nodes.Eventually(t, nodes.WaitTimeout, "a writer waits", func() (waits bool) {
		return pool.QueryRow(t.Context(), waitsSQL).Scan(&waits) == nil && waits
	})
	demand(t, examine(t, configFor(address)), "table locks", Fail, "has locked forge_nodes in a transaction that is open for")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
}

func TestMissingTableIsNamed(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	execute(t, pgtest.Connect(t, address), `ALTER TABLE river_job RENAME TO gone`)
	demand(t, examine(t, configFor(address)), "schema", Fail, "lacks river_job", "from a backup")
}

// Settings of the database change no answer of forge doctor.
func TestSettingsOfDatabase(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	for _, setting := range []string{"datestyle = 'SQL, DMY'", "client_encoding = 'LATIN1'", "standard_conforming_strings = off"} {
		execute(t, pool, fmt.Sprintf(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET ', current_database()) || %s; END $$`, "$s$"+setting+"$s$"))
	}
	findings := examine(t, configFor(address))
	nothingFails(t, findings)
	demand(t, findings, "clock", OK)
}

func TestRoleWithoutFreeConnection(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	user := loginRole(t, pool)
	execute(t, pool, `ALTER ROLE `+user+` CONNECTION LIMIT 0`)
	demand(t, examine(t, configFor(asUser(t, address, user))), "connection", Fail, "too many connections for role", "CONNECTION LIMIT")
}
