package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/test/nodes"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func held(t *testing.T, pool *pgxpool.Pool, holder, name string) (found postgres.Snapshot, ok bool) {
	t.Helper()
	snapshots, err := postgres.Snapshots(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(snapshots, func(s postgres.Snapshot) bool { return s.Holder == holder && strings.Contains(s.Name, name) })
	if i < 0 {
		return found, false
	}
	return snapshots[i], true
}

// A transaction that has written, and one that reads, hold a snapshot until they
// end; a session without a transaction does not.
func TestSnapshotsOfSessions(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, begin := range []string{`BEGIN; SELECT pg_current_xact_id()`, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM forge_nodes`} {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `SET application_name = 'forgotten'; `+begin); err != nil {
			t.Fatal(err)
		}
		exec(t, pool, `CREATE TABLE later AS SELECT 1`)
		exec(t, pool, `DROP TABLE later`)
		s, ok := held(t, pool, postgres.Session, "forgotten")
		if !ok || s.PID != int(conn.Conn().PgConn().PID()) || s.Transactions < 2 || s.Age <= 0 {
			t.Errorf("%s: %+v, found %v", begin, s, ok)
		}
		if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
			t.Fatal(err)
		}
		if s, ok := held(t, pool, postgres.Session, "forgotten"); ok {
			t.Errorf("after the end: %+v", s)
		}
		conn.Release()
	}
}

func TestClockSetBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, test := range []struct {
		sql         string
		least, most time.Duration
	}{
		{`SELECT`, 0, 0},
		{`INSERT INTO forge_events (type) VALUES ('x')`, 0, 0},
		{`INSERT INTO forge_metrics_cluster (metric, at, value, term) VALUES ('m', now() + interval '2 h', 1, 1)`, time.Hour, 2 * time.Hour},
	} {
		exec(t, pool, test.sql)
		clock, err := postgres.ReadClock(t.Context(), pool)
		if err != nil || clock.SetBack < test.least || clock.SetBack > test.most || clock.Now.IsZero() {
			t.Errorf("%s: %+v, %v; want %s to %s", test.sql, clock, err, test.least, test.most)
		}
	}
}

// The clock of a real server is set back by an hour.
func TestServerClockSetBack(t *testing.T) {
	t.Parallel()
	server, clock := pgtest.ServerWithClock(t)
	pool := pgtest.Connect(t, server.URL())
	for _, step := range []struct {
		ahead, least, most time.Duration
	}{
		{time.Hour, 0, 0},
		{0, 59 * time.Minute, time.Hour},
		{time.Hour, 0, 0},
	} {
		if err := clock.Set(step.ahead); err != nil {
			t.Fatal(err)
		}
		read, err := postgres.ReadClock(t.Context(), pool)
		if err != nil || read.SetBack < step.least || read.SetBack > step.most {
			t.Errorf("%s ahead: %+v, %v; want %s to %s", step.ahead, read, err, step.least, step.most)
		}
		if step.ahead > 0 {
			exec(t, pool, `INSERT INTO forge_events (type) VALUES ('x')`)
		}
	}
}

// asLogin returns a pool of a user that has all privileges of a node.
func asLogin(t *testing.T, address string) (pool *pgxpool.Pool, user string) {
	t.Helper()
	owner := pgtest.Connect(t, address)
	if err := owner.QueryRow(t.Context(), `SELECT 'writer_' || current_database()`).Scan(&user); err != nil {
		t.Fatal(err)
	}
	exec(t, owner, `CREATE ROLE `+user+` LOGIN PASSWORD 'writer'`)
	t.Cleanup(func() { exec(t, owner, `DROP OWNED BY `+user); exec(t, owner, `DROP ROLE `+user) })
	exec(t, owner, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+user)
	exec(t, owner, `GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO `+user)
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	parsed.User = url.UserPassword(user, "writer")
	return pgtest.Connect(t, parsed.String()), user
}

func TestRevokedRightsAreNamed(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	owner := pgtest.Connect(t, address)
	pool, user := asLogin(t, address)
	for _, test := range []struct{ revoke, missing, grant string }{
		{`REVOKE UPDATE ON river_job FROM ` + user, "UPDATE on river_job", `GRANT UPDATE ON river_job TO ` + user},
		{`REVOKE USAGE ON SEQUENCE river_job_id_seq FROM ` + user, "USAGE on river_job_id_seq", `GRANT USAGE ON SEQUENCE river_job_id_seq TO ` + user},
		{`REVOKE INSERT ON forge_cron_ticks FROM ` + user, "INSERT on forge_cron_ticks", `GRANT INSERT ON forge_cron_ticks TO ` + user},
		{`REVOKE USAGE ON SCHEMA public FROM PUBLIC`, "USAGE on schema public", `GRANT USAGE ON SCHEMA public TO PUBLIC`},
	} {
		if err := postgres.CheckWrites(t.Context(), pool, "public"); err != nil {
			t.Fatalf("before %s: %v", test.revoke, err)
		}
		exec(t, owner, test.revoke)
		err := postgres.CheckWrites(t.Context(), pool, "public")
		if lacks, ok := errors.AsType[*postgres.RightsError](err); !ok || strings.Join(lacks.Missing, ", ") != test.missing || lacks.User != user {
			t.Errorf("after %s: %v", test.revoke, err)
		}
		exec(t, owner, test.grant)
	}
}

func TestMissingTablesAreNamed(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	exec(t, pool, `ALTER TABLE river_job RENAME TO gone`)
	err := postgres.CheckWrites(t.Context(), pool, "public")
	if absent, ok := errors.AsType[*postgres.TablesError](err); !ok || strings.Join(absent.Missing, ", ") != "river_job" {
		t.Errorf("without river_job: %v", err)
	}
	exec(t, pool, `DROP SCHEMA public CASCADE`)
	err = postgres.CheckWrites(t.Context(), pool, "public")
	if absent, ok := errors.AsType[*postgres.TablesError](err); !ok || len(absent.Missing) < 2 {
		t.Errorf("without the schema: %v", err)
	}
}

func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	if err := postgres.CheckWrites(t.Context(), pgtest.Connect(t, address), "public"); err != nil {
		t.Fatal(err)
	}
	exec(t, pgtest.Connect(t, address), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	if err := postgres.CheckWrites(t.Context(), pgtest.Connect(t, address), "public"); !errors.Is(err, postgres.ErrWritesRejected) {
		t.Errorf("of a read-only database: %v", err)
	}
}

// These checks need a server with its own settings: a full disk, prepared
// transactions and replication slots.
func TestFullDiskAndHoldersWithoutSession(t *testing.T) {
	t.Parallel()
	server, disk := pgtest.ServerOnDisk(t, 160)
	pool := pgtest.Connect(t, server.URL())
	exec(t, pool, `ALTER SYSTEM SET max_prepared_transactions = 2`)
	exec(t, pool, `ALTER SYSTEM SET wal_level = 'logical'`)
	server.Stop(devcluster.StopFast)
	server.Start()
	nodes.Eventually(t, nodes.WaitTimeout, "the pool has connected again", func() bool { return pool.Ping(t.Context()) == nil })

	exec(t, pool, `SELECT pg_create_logical_replication_slot('forgotten_slot', 'pgoutput')`)
	exec(t, pool, `BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten_one'`)
	exec(t, pool, `CREATE TABLE later AS SELECT 1`)
	if s, ok := held(t, pool, postgres.Prepared, "forgotten_one"); !ok || s.Transactions < 1 || s.Age <= 0 {
		t.Errorf("the prepared transaction: %+v, found %v", s, ok)
	}
	if s, ok := held(t, pool, postgres.Slot, "forgotten_slot"); !ok || s.Transactions < 1 || s.Age != 0 {
		t.Errorf("the slot: %+v, found %v", s, ok)
	}

	if err := postgres.CheckWrites(t.Context(), pool, "public"); err != nil {
		t.Fatal(err)
	}
	if err := disk.Fill(); err != nil {
		t.Fatal(err)
	}
	if err := postgres.CheckWrites(t.Context(), pool, "public"); !isDisk(err) {
		t.Errorf("on a full disk: %v", err)
	}
	if err := disk.Free(); err != nil {
		t.Fatal(err)
	}
	nodes.Eventually(t, nodes.WaitTimeout, "the disk takes writes again", func() bool {
		server.Revive()
		return postgres.CheckWrites(t.Context(), pool, "public") == nil
	})
}

func isDisk(err error) bool {
	_, ok := errors.AsType[*postgres.DiskError](err)
	return ok
}
