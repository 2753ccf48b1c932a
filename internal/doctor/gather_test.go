package doctor

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/roles"
	"github.com/forge-scheduler/forge/test/nodes"
)

func configFor(address string) *config.Config {
	cfg := config.Default()
	cfg.Database.URL, cfg.Database.LeaderURL = address, address
	// The lease is long enough for round trips on a busy machine.
	cfg.Cluster.LeaderElection.LeaseDuration = config.Duration(90 * time.Second)
	return cfg
}

func examine(t *testing.T, cfg *config.Config) []Finding {
	t.Helper()
	return Examine(Gather(t.Context(), cfg, nil))
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// nothingFails checks that no finding is worse than a warning.
func nothingFails(t *testing.T, findings []Finding) {
	t.Helper()
	for _, f := range findings {
		if f.Status == Fail {
			t.Errorf("%+v", f)
		}
	}
}

func TestMigratedDatabaseWithoutNodes(t *testing.T) {
	t.Parallel()
	findings := examine(t, configFor(pgtest.URL(t)))
	nothingFails(t, findings)
	for _, check := range []string{
		"connection", "pooler", "primary", "server version", "idle_session_timeout", "lease", "clock",
		"schema", "grants", "lock ids", "tls", "encoding",
	} {
		demand(t, findings, check, OK)
	}
	demand(t, findings, "leaders", Warn, "no node has joined yet")
}

func TestLeaderURLOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	cfg := configFor(address)
	cfg.Database.LeaderURL = pgtest.URL(t)
	for _, strategy := range []string{"advisory", "lease"} {
		cfg.Cluster.LeaderElection.Strategy = strategy
		demand(t, examine(t, cfg), "connection", Fail, "lead to two databases")
	}
	cfg.Database.LeaderURL = pgtest.Proxy(t, address).URL()
	demand(t, examine(t, cfg), "connection", OK)
}

func TestEmptyDatabase(t *testing.T) {
	t.Parallel()
	findings := examine(t, configFor(pgtest.EmptyURL(t)))
	nothingFails(t, findings)
	demand(t, findings, "schema", Warn, "no tables yet", "forge migrate up")
}

func TestSchemaOfOtherBinaries(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	execute(t, pool, `UPDATE river_migration SET version = version + 1000`)
	demand(t, examine(t, configFor(address)), "schema", Fail, "a newer one")
	execute(t, pool, `DELETE FROM river_migration`)
	demand(t, examine(t, configFor(address)), "schema", Warn, "older than this binary")
}

func TestSchemaThatLacksColumns(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	execute(t, pool, `DELETE FROM forge_migrations WHERE version_id >= 81`)
	execute(t, pool, `ALTER TABLE forge_nodes DROP COLUMN reserved`)
	findings := examine(t, configFor(address))
	nothingFails(t, findings)
	demand(t, findings, "schema", Warn, "older than this binary, which cannot read leaders, nodes and queues", "forge migrate up")
}

// TestPrintedGrantsSuffice checks that a user without privileges gets the GRANT
// statements, that these are sufficient, and that no finding is based on tables that the
// user may not read.
func TestPrintedGrantsSuffice(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	user := loginRole(t, pool)
	cfg := configFor(asUser(t, address, user))

	node := holdLock(t, address, "forge:"+incarnation+":web-1")
	findings := examine(t, cfg)
	for _, f := range findings {
		if f.Status == Fail && f.Check != "grants" {
			t.Errorf("beside the grants: %+v", f)
		}
	}
	letGo(t, pool, node)
	demand(t, findings, "grants", Fail, user+" lacks SELECT, INSERT, UPDATE, DELETE on public.", "as the owner: GRANT")
	for _, f := range findings {
		if f.Check == "grants" && f.Status == Fail {
			execute(t, pool, strings.TrimPrefix(f.Remedy, "as the owner: "))
		}
	}
	findings = examine(t, cfg)
	nothingFails(t, findings)
	demand(t, findings, "grants", OK, user)

	execute(t, pool, `REVOKE INSERT ON forge_leader_history FROM `+user)
	demand(t, examine(t, cfg), "grants", Fail, user+" lacks INSERT on public.forge_leader_history",
		fmt.Sprintf(`GRANT INSERT ON TABLE public.forge_leader_history TO "%s";`, user))
}

// TestPrintedGrantsSufficeForSchema checks a user who may not use the schema, whose name has to
// be quoted.
func TestPrintedGrantsSufficeForSchema(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	execute(t, pool, `ALTER SCHEMA public RENAME TO "user"`)
	execute(t, pool, `REVOKE ALL ON SCHEMA "user" FROM PUBLIC`)
	user := loginRole(t, pool)
	cfg := configFor(asUser(t, address, user))
	cfg.Database.Schema = "user"
	findings := examine(t, cfg)
	demand(t, findings, "grants", Fail, user+` lacks USAGE on "user"`)
	for _, f := range findings {
		switch {
		case f.Check == "grants" && f.Status == Fail:
			if strings.Contains(f.Remedy, "forge_note_claim") {
				t.Errorf("a trigger needs no privilege: %s", f.Remedy)
			}
			execute(t, pool, strings.TrimPrefix(f.Remedy, "as the owner: "))
		case f.Status == Fail:
			t.Errorf("beside the grants: %+v", f)
		}
	}
	demand(t, examine(t, cfg), "grants", OK, user)
}

func TestConnectionsOfOtherUsersCount(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	user := loginRole(t, pool)
	const others = 4
	for range others {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer postgres.CloseNow(conn)
	}
	server := Gather(t.Context(), configFor(asUser(t, address, user)), nil).Server
	if server == nil || server.Connections <= others {
		t.Errorf("%+v, want more than %d connections", server, others)
	}
}

func TestMigrationThatOnlyTheOwnerMayRun(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	user := loginRole(t, pool)
	execute(t, pool, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+user)
	execute(t, pool, `DELETE FROM river_migration`)
	demand(t, examine(t, configFor(asUser(t, address, user))), "schema", Fail, "run forge migrate up as postgres")
}

// TestLoginsThatMayConnectAreFound checks that a login that may connect is found, whether
// through PUBLIC or its own privilege, and no longer once that is revoked.
func TestLoginsThatMayConnectAreFound(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	user := loginRole(t, pool)
	var database string
	if err := pool.QueryRow(t.Context(), `SELECT quote_ident(current_database())`).Scan(&database); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		statement     string
		public, login bool
	}{
		{`SELECT`, true, true},
		{`REVOKE CONNECT ON DATABASE ` + database + ` FROM PUBLIC`, false, false},
		{`GRANT CONNECT ON DATABASE ` + database + ` TO ` + user, false, true},
	} {
		execute(t, pool, test.statement)
		server := Gather(t.Context(), configFor(address), nil).Server
		if server == nil || server.PublicConnect != test.public || slices.Contains(server.OtherLogins, user) != test.login {
			t.Errorf("after %s: %+v, want public %v and %s among the logins %v", test.statement, server, test.public, user, test.login)
		}
	}
}

// password is for servers that require one.
const password = "doctor"

// loginRole creates a user of the server that is dropped when the test ends.
func loginRole(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var name string
	if err := pool.QueryRow(t.Context(), `SELECT 'doctor_' || current_database()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	execute(t, pool, `CREATE ROLE `+name+` LOGIN PASSWORD '`+password+`'`)
	t.Cleanup(func() {
		execute(t, pool, `DROP OWNED BY `+name)
		execute(t, pool, `DROP ROLE `+name)
	})
	return name
}

func asUser(t *testing.T, address, user string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	parsed.User = url.UserPassword(user, password)
	return parsed.String()
}

// holdLock holds the scheduler's lock under the given application_name.
func holdLock(t *testing.T, address, application string) *pgx.Conn {
	t.Helper()
	parsed, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	parsed.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(t.Context(), parsed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	id, err := roles.Scheduler.LockID(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, id); err != nil {
		t.Fatal(err)
	}
	return conn
}

// letGo ends a session that holds a lock, and waits until the server has released it.
func letGo(t *testing.T, pool *pgxpool.Pool, conn *pgx.Conn) {
	t.Helper()
	_ = conn.Close(t.Context())
	nodes.Eventually(t, nodes.WaitTimeout, "the session has ended", func() (ended bool) {
		err := pool.QueryRow(t.Context(), `SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = $1)`, conn.PgConn().PID()).Scan(&ended)
		if err != nil {
			t.Fatal(err)
		}
		return ended
	})
}

func TestLockOfAnotherApplicationIsNamed(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	other := holdLock(t, address, "billing")
	findings := examine(t, configFor(address))
	demand(t, findings, "lock ids", Fail, "scheduler", fmt.Sprintf("process %d", other.PgConn().PID()), `"billing"`, "cluster.lock_namespace")

	moved := configFor(address)
	moved.Cluster.LockNamespace = 3
	demand(t, examine(t, moved), "lock ids", OK)

	own := configFor(address)
	own.Cluster.LeaderElection.Roles = map[string]config.RoleOverrides{"scheduler": {LockID: 99}, "mailer": {LockID: 0x464F524745_0001}}
	findings = examine(t, own)
	demand(t, findings, "lock ids", Fail, "the lock of mailer", `"billing"`)

	letGo(t, pool, other)
	execute(t, pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ('web-1', $1)`, incarnation)
	holdLock(t, address, "forge:"+incarnation+":web-1")
	demand(t, examine(t, configFor(address)), "lock ids", OK)
	execute(t, pool, `UPDATE forge_nodes SET incarnation = 'ffffffffffffffff'`)
	demand(t, examine(t, configFor(address)), "lock ids", Fail, "another forge cluster")
}

// TestClusterAsWrittenByNodes checks that the doctor reads the rows that nodes write.
func TestClusterAsWrittenByNodes(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	for _, sql := range []string{
		`INSERT INTO forge_nodes (node_id, incarnation, hostname, state, roles, config_hash) VALUES
			('web-1', '00000000000000aa', 'h1', 'active', '{scheduler}', 'new'), ('web-2', '00000000000000bb', 'h2', 'dead', '{scheduler}', 'old')`,
		`INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until)
			VALUES ('scheduler', 'web-1', '00000000000000aa', 4, now(), now(), now() + interval '1 min'), ('log_compactor', NULL, NULL, 1, NULL, NULL, NULL)`,
		`INSERT INTO forge_config (hash, applied_by, body) VALUES ('other', 'web-9', '{}')`,
		`INSERT INTO forge_metrics_nodes (node_id, incarnation, samples)
			VALUES ('web-1', '00000000000000aa', jsonb_build_object('clock', clock_timestamp() - interval '1 hour'))`,
	} {
		execute(t, pool, sql)
	}
	findings := examine(t, configFor(address))
	demand(t, findings, "nodes", Warn, "web-2", "h2", "dead")
	demand(t, findings, "leaders", Warn, "web-1 leads scheduler", "no other node")
	demand(t, findings, "leaders", Fail, "nobody leads log_compactor", "no running node has it in node.roles")
	demand(t, findings, "leaders", Fail, "nobody leads metrics_aggregator", "no row")
	demand(t, findings, "lease", Warn, "lease of 1m0s")
	demand(t, findings, "drift", Warn, "web-1 runs configuration new", "other")
	demand(t, findings, "drift", OK, "this file has no crons")
	withCrons := configFor(address)
	withCrons.Jobs = map[string]config.Job{"tidy": {}}
	demand(t, examine(t, withCrons), "drift", Warn, "this file means")
	execute(t, pool, `INSERT INTO forge_config (hash, applied_by, body, applied_at) VALUES ('new', 'web-9', '{"crons": [{"name": "steady"}]}', now() - interval '1 hour')`)
	demand(t, examine(t, configFor(address)), "drift", Warn, "the active node runs the earlier configuration new, which differs by crons +steady; in force is other", "forge apply with that file")
	execute(t, pool, `DELETE FROM forge_config WHERE hash = 'new'`)
	execute(t, pool, `UPDATE forge_config SET body = '{"crons": [{"name": "gone"}, {"name": "too"}]}'`)
	demand(t, examine(t, withCrons), "drift", Warn, "this file waits for forge apply --yes: it would remove 2 of 2 crons (gone, too)")
	demand(t, findings, "clock", Fail, "node web-1", "behind")
}

// TestHazardsAreFound checks that hazards that stop work while all nodes run are found in
// a real database.
func TestHazardsAreFound(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	demand(t, examine(t, configFor(address)), "queues", OK, "no job waits")
	demand(t, examine(t, configFor(address)), "writes", OK)
	demand(t, examine(t, configFor(address)), "snapshots", OK)
	for _, sql := range []string{
		`INSERT INTO river_queue (name, paused_at, updated_at) VALUES ('mail', now() - interval '3 days', now())`,
		`INSERT INTO river_job (kind, args, max_attempts, queue, scheduled_at) VALUES
			('k', '{}', 1, 'mail', now() - interval '2 days'), ('k', '{}', 1, 'slow', now() - interval '5 h')`,
		`INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason)
			SELECT 'scheduler', n, 'a', '00000000000000aa', now() - interval '1 min', now(), 'stepped_down' FROM generate_series(1, 6) n`,
		`INSERT INTO forge_events (type, at) VALUES ('x', now() + interval '90 min')`,
	} {
		execute(t, pool, sql)
	}
	findings := examine(t, configFor(address))
	demand(t, findings, "queues", Warn, "queue mail is paused for 72h", "oldest job has waited for 48h")
	demand(t, findings, "queues", Warn, "queue slow has waited for 5h")
	demand(t, findings, "failovers", Warn, "scheduler lost its leader 6 times", "6 stepped down")
	demand(t, findings, "clock", Warn, "database's clock was set back by 1h")

	execute(t, pool, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	demand(t, examine(t, configFor(address)), "writes", Fail, "read-only", "default_transaction_read_only")
}

func TestEncodingAndRoomOfTheServer(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(parsed.Path, "/") + "_ascii"
	execute(t, pool, `CREATE DATABASE `+name+` ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	t.Cleanup(func() { execute(t, pool, `DROP DATABASE `+name+` WITH (FORCE)`) })
	parsed.Path = "/" + name
	cfg := configFor(parsed.String())
	cfg.Database.PoolSize = 10_000
	findings := examine(t, cfg)
	demand(t, findings, "encoding", Fail, "SQL_ASCII")
	demand(t, findings, "connections", Warn, "10004 connections")
}

// The election's session overrides the server's own settings.
func TestShortTCPTimeoutsOfTheServerDoNotMatter(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	execute(t, pgtest.Connect(t, address), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET tcp_user_timeout = 100', current_database()); END $$`)
	demand(t, examine(t, configFor(address)), "lease", OK)
}

// Where a session cannot set the time, it is read from the server.
func TestLinkReadsServerTimeouts(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]time.Duration{
		`SET tcp_user_timeout = 2500`: 2500 * time.Millisecond,
		`SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3`: 5 * time.Second,
	} {
		conn, err := pgx.Connect(t.Context(), pgtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		defer postgres.CloseNow(conn)
		if _, err := conn.Exec(t.Context(), settings); err != nil {
			t.Fatal(err)
		}
		var link Link
		if err := link.readIdleTimeout(t.Context(), conn); err != nil || link.GivesUp != want {
			t.Errorf("%s: %v, %v", settings, link.GivesUp, err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	findings := examine(t, configFor("postgres://forge:hunter2@127.0.0.1:1/forge"))
	demand(t, findings, "connection", Fail, "connection refused")
	for _, f := range findings {
		if strings.Contains(f.Detail+f.Remedy, "hunter2") {
			t.Errorf("the password is shown: %+v", f)
		}
	}
}

func TestReplica(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	replica := server.Replica()
	address := replica.URL() + "&target_session_attrs=read-write" // connects only to the named server
	findings := examine(t, configFor(address))
	demand(t, findings, "primary", Fail, "replica", "names only 127.0.0.1:", "name the primary, or every server")
	for _, f := range findings {
		if strings.Contains(f.Remedy, "target_session_attrs") {
			t.Errorf("%s is set already: %s", f.Check, f.Remedy)
		}
	}
	first, second, _ := strings.Cut(address, "?")
	findings = examine(t, configFor(strings.Replace(first, "@127.0.0.1", "@127.0.0.1:1,127.0.0.1", 1)+"?"+second))
	demand(t, findings, "primary", Fail, "names 127.0.0.1:1, 127.0.0.1:", "start the primary, promote a replica")
	demand(t, findings, "schema", OK)
	demand(t, examine(t, configFor(server.URL())), "replication", OK, "1 replica, synchronous with")

	pool := pgtest.Connect(t, server.URL())
	execute(t, pool, `ALTER SYSTEM RESET synchronous_standby_names`)
	execute(t, pool, `SELECT pg_reload_conf()`)
	for deadline := time.Now().Add(time.Minute); ; {
		findings = examine(t, configFor(server.URL()))
		if slices.ContainsFunc(findings, func(f Finding) bool { return f.Check == "replication" && f.Status == Warn }) || time.Now().After(deadline) {
			break
		}
	}
	demand(t, findings, "replication", Warn, "asynchronously", "synchronous_standby_names")
}

func TestPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	bouncer := pgtest.StartBouncer(t, address, "transaction")
	findings := examine(t, configFor(bouncer.URL()))
	demand(t, findings, "pooler", Fail, "transaction mode", "database.url lead straight", `strategy = "lease"`)
	demand(t, findings, "server version", OK)

	cfg := configFor(address)
	cfg.Database.URL = bouncer.URL()
	findings = examine(t, cfg)
	demand(t, findings, "pooler", Fail, "database.url: a pooler in transaction mode")
	demand(t, findings, "idle_session_timeout", OK)
}

func TestPoolerInSessionMode(t *testing.T) {
	t.Parallel()
	findings := examine(t, configFor(pgtest.StartBouncer(t, pgtest.URL(t), "session").URL()))
	demand(t, findings, "pooler", OK, "session mode")
	nothingFails(t, findings)
}

// A link that drops the server's messages keeps its end of a session open.
func TestSessionsKeptAliveByTheLink(t *testing.T) {
	t.Parallel()
	link := pgtest.Proxy(t, pgtest.URL(t))
	conn, err := dial(t.Context(), link.URL(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer postgres.CloseNow(conn)
	link.StallReplies()
	defer link.Resume()
	waiting, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if endedByServer(waiting, conn) {
		t.Error("a session without an end was taken for ended")
	}
}
