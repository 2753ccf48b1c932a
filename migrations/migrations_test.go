package migrations_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/migrations"
	"github.com/forge-scheduler/forge/test/nodes"
)

func TestUpOnEmptyDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	m := newMigrator(pool)

	if err := m.Check(t.Context()); !errors.Is(err, migrations.ErrPending) {
		t.Fatalf("Check of an empty database = %v, want ErrPending", err)
	}
	if steps := status(t, m); len(applied(steps)) != 0 || len(steps) < 9 {
		t.Fatalf("an empty database has %d of %d migrations applied", len(applied(steps)), len(steps))
	}
	mustUp(t, m)
	if err := m.Check(t.Context()); err != nil {
		t.Fatalf("Check after Up: %v", err)
	}
	if steps := status(t, m); len(applied(steps)) != len(steps) {
		t.Fatalf("after Up %d of %d migrations are applied", len(applied(steps)), len(steps))
	}
	before := catalogue(t, pool)
	mustUp(t, m)
	if diff := cmp.Diff(before, catalogue(t, pool)); diff != "" {
		t.Errorf("a second Up changed the schema:\n%s", diff)
	}
}

// Ten nodes of a fresh cluster start at once, each with a pool of the least
// size.
func TestUpTenAtOnce(t *testing.T) {
	t.Parallel()
	database := pgtest.EmptyURL(t)
	start := make(chan struct{})
	var group errgroup.Group
	for range 10 {
		pool := connect(t, database, func(c *pgxpool.Config) { c.MaxConns = 2 })
		group.Go(func() error {
			<-start
			return newMigrator(pool).Up(t.Context())
		})
	}
	close(start)
	if err := group.Wait(); err != nil {
		t.Fatalf("one of ten migrators failed: %v", err)
	}
	if err := newMigrator(pgtest.Connect(t, database)).Check(t.Context()); err != nil {
		t.Errorf("Check after ten migrators: %v", err)
	}
}

// Several migrators may share a pool: those that wait hold no connection.
func TestUpManyOnOnePool(t *testing.T) {
	t.Parallel()
	pool := connect(t, pgtest.EmptyURL(t), func(c *pgxpool.Config) { c.MaxConns = 4 })
	ctx, cancel := context.WithTimeout(t.Context(), nodes.WaitTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for range 8 {
		group.Go(func() error { return newMigrator(pool).Up(ctx) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestUpWaitsForTheLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1)`, int64(0x464F524745_00FF)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := newMigrator(pool).Up(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Up beside another migration = %v, want the deadline", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustUp(t, newMigrator(pool))
}

// A node of the previous version and a migration wait for each other: each has locked a table
// that the other needs. The migration fails, and is repeated.
func TestUpAfterDeadlock(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	pool := connect(t, database, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["deadlock_timeout"] = "3s" // from its wait to its failure
	})
	m := newMigrator(pool)
	downBelow(t, m, 81) // it changes forge_limits, and then forge_nodes
	node := pgtest.Connect(t, database)
	tx, err := node.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SET LOCAL deadlock_timeout = '1min'; LOCK TABLE forge_nodes IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Up(t.Context()) }()
	awaitTrue(t, node, `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'forge_nodes'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted)`)
	if _, err := tx.Exec(t.Context(), `LOCK TABLE forge_limits IN ROW EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Up: %v", err)
	}
}

// A role's lock_timeout ends a migration's wait for a reader. The migration is repeated until
// the reader has ended.
func TestUpAfterLockTimeout(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	pool := connect(t, database, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["lock_timeout"] = "100ms"
	})
	warnings := make(lineChannel, 100)
	m := migrations.New(pool, slog.New(slog.NewTextHandler(warnings, &slog.HandlerOptions{Level: slog.LevelWarn})))
	downBelow(t, m, 65)
	reader, err := pgtest.Connect(t, database).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Rollback(context.Background()) }()
	if _, err := reader.Exec(t.Context(), `LOCK TABLE river_job IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Up(t.Context()) }()
	<-warnings
	if warning := <-warnings; !strings.Contains(warning, "try=2") {
		t.Errorf("second warning: %s", warning)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Up: %v", err)
	}
}

// lineChannel receives the lines of a log.
type lineChannel chan string

func (c lineChannel) Write(line []byte) (int, error) {
	c <- string(line)
	return len(line), nil
}

// A node's pool ends abandoned transactions; the one that holds the lock is not
// abandoned while another connection works.
func TestUpOutlastsTheIdleTimeout(t *testing.T) {
	t.Parallel()
	database := pgtest.EmptyURL(t)
	admin := pgtest.Connect(t, database)
	tx, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	// River's first migration waits for the end of this transaction.
	if _, err := tx.Exec(t.Context(), `CREATE TABLE river_migration ()`); err != nil {
		t.Fatal(err)
	}
	pool := connect(t, database, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "5s" // no slow machine pauses as long in a migration
	})
	done := make(chan error, 1)
	go func() { done <- newMigrator(pool).Up(t.Context()) }()
	awaitTrue(t, admin, `SELECT EXISTS (
		SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE 'SET LOCAL%'
		  AND clock_timestamp() - state_change > '6 seconds')`)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Up: %v", err)
	}
}

func TestNewerSchemaIsRefusedUnchanged(t *testing.T) {
	t.Parallel()
	for name, newer := range map[string]string{
		"river": `INSERT INTO river_migration (line, version) VALUES ('main', 999)`,
		"forge": `INSERT INTO forge_migrations (version_id, is_applied) VALUES (999, true)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			m := newMigrator(pool)
			// One of forge's migrations is missing too: the newer one must win.
			if err := m.Down(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustExec(t, pool, newer)
			before := catalogue(t, pool)

			for operation, run := range map[string]func(context.Context) error{"Up": m.Up, "Down": m.Down, "Check": m.Check} {
				err := run(t.Context())
				if !errors.Is(err, migrations.ErrNewerSchema) {
					t.Errorf("%s on a newer schema = %v, want ErrNewerSchema", operation, err)
				} else if !strings.Contains(err.Error(), name+"'s migration 999") {
					t.Errorf("%s: %q does not name the migration", operation, err)
				}
			}
			if diff := cmp.Diff(before, catalogue(t, pool)); diff != "" {
				t.Errorf("a newer schema was changed:\n%s", diff)
			}
			if _, err := m.Status(t.Context()); err != nil {
				t.Errorf("Status of a newer schema: %v", err)
			}
		})
	}
}

func TestDownThenUp(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := newMigrator(pool)
	full := catalogue(t, pool)
	mustExec(t, pool, `INSERT INTO river_job (kind, args, max_attempts) VALUES ('kept', '{}', 1)`)

	for range forgeSteps(status(t, m)) + 1 { // the last one has nothing to do
		if err := m.Down(t.Context()); err != nil {
			t.Fatalf("Down: %v", err)
		}
	}
	if left := forgeSteps(applied(status(t, m))); left != 0 {
		t.Fatalf("%d of forge's migrations are left", left)
	}
	for _, object := range catalogue(t, pool) {
		if strings.HasPrefix(object, "forge_") && !strings.HasPrefix(object, "forge_migrations") {
			t.Errorf("Down left %s", object)
		}
	}
	mustUp(t, m)
	if diff := cmp.Diff(full, catalogue(t, pool)); diff != "" {
		t.Errorf("Down and Up changed the schema:\n%s", diff)
	}
	var jobs int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job WHERE kind = 'kept'`).Scan(&jobs); err != nil {
		t.Fatal(err)
	}
	if jobs != 1 {
		t.Error("Down lost River's jobs")
	}
}

// What Down drops is announced: each table and column that is gone after it, and no
// other.
func TestNewestSaysWhatIsLost(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := newMigrator(pool)
	fill(t, pool)
	const columns = `SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public' AND table_name LIKE 'forge\_%' AND table_name <> 'forge_migrations'`
	for {
		step, losses, err := m.Newest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if step.Version == 0 {
			return
		}
		said := map[string]bool{}
		for _, loss := range losses {
			switch {
			case loss.Where != "":
			case loss.Column != "":
				said[loss.Table+"."+loss.Column] = true
			default:
				said[loss.Table] = true
			}
			if step.Version == 63 && loss.Column == "" && loss.Where == "" && loss.Rows == 0 { // rows.sql has rows for these
				t.Errorf("%s says %s, though there are rows", step.Name, loss)
			}
		}
		before := column(t, pool, columns)
		if err := m.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := column(t, pool, columns)
		gone := map[string]bool{}
		for _, name := range before {
			if slices.Contains(after, name) || strings.HasPrefix(name, "forge_cron_ticks_") || strings.HasPrefix(name, "forge_metrics_cluster_") {
				continue // or of a partition, whose rows stay
			}
			table, _, _ := strings.Cut(name, ".")
			if said[table] {
				name = table
			}
			gone[name] = true
		}
		if diff := cmp.Diff(gone, said); diff != "" {
			t.Errorf("%s: what is gone and what was said (-gone +said):\n%s", step.Name, diff)
		}
	}
}

// A database that stopped in the midst of River's migrations, before the column
// line came, is brought on.
func TestUpFromAnEarlyRiver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	mustExec(t, pool, `CREATE TABLE river_migration (id bigserial PRIMARY KEY,
		created_at timestamptz NOT NULL DEFAULT now(), version bigint NOT NULL)`)
	mustExec(t, pool, `INSERT INTO river_migration (version) VALUES (1)`)
	m := newMigrator(pool)
	if got := applied(status(t, m)); len(got) != 1 || got[0].Source != "river" || got[0].Version != 1 {
		t.Fatalf("applied = %v, want river 1", got)
	}
	mustUp(t, m)
}

func TestUpWithoutRights(t *testing.T) {
	t.Parallel()
	database := pgtest.EmptyURL(t)
	owner := pgtest.Connect(t, database)
	role := "forge_test_" + strings.ToLower(rand.Text()[:12])
	mustExec(t, owner, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'x'`, role))
	t.Cleanup(func() { mustExec(t, owner, `DROP ROLE `+role) })
	mustExec(t, owner, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`)

	pool := connect(t, database, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "x" })
	err := doctor.ExplainGrants(t.Context(), pool, "public", newMigrator(pool).Up(t.Context()))
	if err == nil || !strings.Contains(err.Error(), `GRANT CREATE ON SCHEMA public TO "`+role+`";`) {
		t.Errorf("Up without rights = %v, want the GRANT that it needs", err)
	}
	if got := catalogue(t, owner); len(got) != 0 {
		t.Errorf("Up without rights left %v", got)
	}
	mustUp(t, newMigrator(owner))
	err = doctor.ExplainGrants(t.Context(), pool, "public", newMigrator(pool).Up(t.Context()))
	if err == nil || !strings.Contains(err.Error(), `GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE public.forge_`) {
		t.Errorf("Up without rights on the tables = %v", err)
	}
}

func TestUpWithoutSchema(t *testing.T) {
	t.Parallel()
	pool := connect(t, pgtest.EmptyURL(t), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = "nowhere"
	})
	err := newMigrator(pool).Up(t.Context())
	if err == nil || !strings.Contains(err.Error(), "run CREATE SCHEMA first") {
		t.Errorf("Up without a schema = %v, want the remedy", err)
	}
}

func TestUpRefusesPoolOfOne(t *testing.T) {
	t.Parallel()
	pool := connect(t, pgtest.EmptyURL(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	if err := newMigrator(pool).Up(t.Context()); err == nil || !strings.Contains(err.Error(), "pool_size") {
		t.Errorf("Up with one connection = %v, want an error that names pool_size", err)
	}
}

func newMigrator(pool *pgxpool.Pool) *migrations.Migrator {
	return migrations.New(pool, slog.New(slog.DiscardHandler))
}

func mustUp(t *testing.T, m *migrations.Migrator) {
	t.Helper()
	if err := m.Up(t.Context()); err != nil {
		t.Fatalf("Up: %v", err)
	}
}

func status(t *testing.T, m *migrations.Migrator) []migrations.Step {
	t.Helper()
	steps, err := m.Status(t.Context())
	if err != nil {
		t.Fatalf("Status: %v", err)
	}
	return steps
}

func applied(steps []migrations.Step) []migrations.Step {
	var done []migrations.Step
	for _, step := range steps {
		if step.Applied {
			done = append(done, step)
		}
	}
	return done
}

func forgeSteps(steps []migrations.Step) int {
	n := 0
	for _, step := range steps {
		if step.Source == "forge" {
			n++
		}
	}
	return n
}

// catalogue describes every table and index of the schema public.
func catalogue(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT c.relname || ' ' || coalesce(pg_get_indexdef(c.oid), '') || coalesce(array_to_string(c.reloptions, ','), '')
		FROM pg_class c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'i', 'p', 'I')
		ORDER BY c.relname`)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func awaitTrue(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	deadline := time.Now().Add(nodes.WaitTimeout)
	for {
		var ok bool
		if err := pool.QueryRow(t.Context(), sql).Scan(&ok); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not so in time: %s", sql)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func connect(t *testing.T, database string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
