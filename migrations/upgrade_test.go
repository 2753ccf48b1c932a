package migrations_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/migrations"
)

func lines(t *testing.T, path string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for scanner := bufio.NewScanner(strings.NewReader(string(text))); scanner.Scan(); {
		if line := scanner.Text(); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "--") {
			found = append(found, line)
		}
	}
	return found
}

// A database of the last unreleased build is this binary's as it is, or needs the later
// migrations alone. TestUpgradeFromEveryLandedSchema upgrades it, and databases that
// already have some of those, as doctor advises. They keep their rows, and then have the
// same tables, indexes and functions as a database that was empty.
func TestUpgradeFromEveryLandedSchema(t *testing.T) {
	t.Parallel()
	want := details(t, pgtest.Pool(t))
	landed := laterMigrations(t)
	for newest := range len(landed) + 1 {
		name := "063"
		if newest > 0 {
			name = landed[newest-1]
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.EmptyURL(t)
			restore(t, address)
			pool := pgtest.Connect(t, address)
			apply(t, pool, landed[:newest])
			fill(t, pool) // what later migrations made
			before := contents(t, pool)
			demandRowsEverywhere(t, before)
			upgradeAsAdvised(t, address, pool)
			for table, rows := range before {
				demandKept(t, pool, table, rows)
			}
			if diff := cmp.Diff(want, details(t, pool)); diff != "" {
				t.Errorf("not as in a new database (-want +got):\n%s", diff)
			}
		})
	}
}

// laterMigrations lists the files that landed after the baseline.
func laterMigrations(t *testing.T) (files []string) {
	t.Helper()
	for _, line := range lines(t, landedPath) {
		if _, file, _ := strings.Cut(line, "  "); file != "063_baseline.sql" {
			files = append(files, file)
		}
	}
	return files
}

// upgradeAsAdvised does what doctor says of the schema, and nothing if all is well.
func upgradeAsAdvised(t *testing.T, address string, pool *pgxpool.Pool) {
	t.Helper()
	if finding := schemaAdvice(t, address); finding.Status != doctor.OK {
		if !strings.Contains(finding.Remedy, "run forge migrate up") {
			t.Fatalf("doctor: %+v", finding)
		}
		mustUp(t, newMigrator(pool))
	}
	if finding := schemaAdvice(t, address); finding.Status != doctor.OK {
		t.Errorf("after what doctor advised: %+v", finding)
	}
}

// schemaAdvice returns what doctor says of the schema.
func schemaAdvice(t *testing.T, address string) doctor.Finding {
	t.Helper()
	cfg := config.Default()
	cfg.Database.URL, cfg.Database.LeaderURL = address, address
	for _, finding := range doctor.Examine(doctor.Gather(t.Context(), cfg, nil)) {
		if finding.Check == "schema" {
			return finding
		}
	}
	t.Fatal("doctor says nothing of the schema")
	return doctor.Finding{}
}

// A database of an unreleased build loses forge's tables with the baseline, and can be
// migrated again.
func TestDownAndUpOfAnUnreleasedSchema(t *testing.T) {
	t.Parallel()
	address := pgtest.EmptyURL(t)
	restore(t, address)
	pool := pgtest.Connect(t, address)
	m := newMigrator(pool)
	mustUp(t, m)
	want := details(t, pool)
	for forgeSteps(applied(status(t, m))) > 0 {
		if err := m.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left := names(t, pool); !slices.Equal(left, []string{"river_job"}) {
		t.Errorf("left: %v", left)
	}
	mustUp(t, m)
	if diff := cmp.Diff(want, details(t, pool)); diff != "" {
		t.Errorf("down and up changed the schema:\n%s", diff)
	}
}

// A database from before the baseline is refused with the build that it needs, and stays
// as it is.
func TestOlderSchemaIsRefusedUnchanged(t *testing.T) {
	t.Parallel()
	for _, newest := range []int{1, 62} {
		t.Run(strconv.Itoa(newest), func(t *testing.T) {
			t.Parallel()
			address := pgtest.EmptyURL(t)
			restore(t, address)
			pool := pgtest.Connect(t, address)
			mustExec(t, pool, fmt.Sprintf(`DELETE FROM forge_migrations WHERE version_id > %d`, newest))
			mustExec(t, pool, `DELETE FROM river_migration WHERE version = (SELECT max(version) FROM river_migration)`)
			before, versions := details(t, pool), column(t, pool, versionsSQL)
			m := newMigrator(pool)
			for operation, run := range map[string]func(context.Context) error{
				"Up": m.Up, "Down": m.Down, "Check": m.Check,
				"Newest": func(ctx context.Context) error { _, _, err := m.Newest(ctx); return err },
			} {
				err := run(t.Context())
				want := fmt.Sprintf("its newest migration of forge is %d, and this binary upgrades from 63 on; "+
					"first run forge migrate up of an earlier build, one whose newest migration is 63", newest)
				if !errors.Is(err, migrations.ErrTooOld) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s = %v, want ErrTooOld with %q", operation, err, want)
				}
			}
			if diff := cmp.Diff(before, details(t, pool)); diff != "" {
				t.Errorf("an older schema was changed:\n%s", diff)
			}
			if diff := cmp.Diff(versions, column(t, pool, versionsSQL)); diff != "" {
				t.Errorf("the applied migrations were changed:\n%s", diff)
			}
			if finding := schemaAdvice(t, address); finding.Status != doctor.Fail || !strings.Contains(finding.Remedy, "of that earlier build") {
				t.Errorf("doctor: %+v", finding)
			}
		})
	}
}

const versionsSQL = `SELECT version_id::text FROM forge_migrations UNION ALL SELECT line || version FROM river_migration ORDER BY 1`

// A migration that this binary does not know keeps it from a schema even if its number
// is below the newest, and is none of those that the baseline replaced.
func TestUnknownMigrationIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO forge_migrations (version_id, is_applied) VALUES (25, true)`)
	err := newMigrator(pool).Up(t.Context())
	if err == nil || !strings.Contains(err.Error(), "forge's migration 25 is applied, which this binary does not know") {
		t.Errorf("Up = %v", err)
	}
}

// restore fills an empty database with the stored one of the last unreleased build.
func restore(t *testing.T, address string) {
	t.Helper()
	dump, err := os.ReadFile("testdata/063.sql")
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Connect(t, address) // whose only session keeps the settings of the dump
	defer pool.Close()
	mustExec(t, pool, string(dump))
}

// apply applies files as a binary does whose newest is the last one.
func apply(t *testing.T, pool *pgxpool.Pool, names []string) {
	t.Helper()
	if len(names) == 0 {
		return
	}
	files := fstest.MapFS{}
	for _, name := range names {
		body, err := fs.ReadFile(migrations.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: body}
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName("forge_migrations"), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var intoSQL = regexp.MustCompile(`^INSERT INTO (\w+)`)

// fill puts rows into the tables that have none.
func fill(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	tables := names(t, pool)
	for table, rows := range contents(t, pool) {
		if len(rows) > 0 {
			tables = slices.DeleteFunc(tables, func(name string) bool { return name == table })
		}
	}
	for _, statement := range lines(t, "testdata/rows.sql") {
		if slices.Contains(tables, intoSQL.FindStringSubmatch(statement)[1]) {
			mustExec(t, pool, statement)
		}
	}
}

// names lists River's jobs and forge's tables, without partitions.
func names(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	return column(t, pool, `SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
		AND NOT relispartition AND (relname = 'river_job' OR relname LIKE 'forge\_%') AND relname <> 'forge_migrations' ORDER BY 1`)
}

// contents returns the rows of each table as JSON.
func contents(t *testing.T, pool *pgxpool.Pool) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, table := range names(t, pool) {
		found[table] = column(t, pool, `SELECT to_jsonb(t)::text FROM `+table+` t`)
	}
	return found
}

func demandRowsEverywhere(t *testing.T, rows map[string][]string) {
	t.Helper()
	for table, rows := range rows {
		if len(rows) == 0 {
			t.Errorf("testdata/rows.sql has no row for %s", table)
		}
	}
}

// demandKept demands that each row is there with the values that it had.
func demandKept(t *testing.T, pool *pgxpool.Pool, table string, rows []string) {
	t.Helper()
	lost := column(t, pool, `SELECT b FROM unnest($1::text[]) b WHERE NOT EXISTS (SELECT FROM `+table+` t WHERE to_jsonb(t) @> b::jsonb)`, rows)
	for _, row := range lost {
		t.Errorf("%s lost or changed %s", table, row)
	}
}

// details describes all that migrations make in the schema public.
func details(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	return column(t, pool, `
		SELECT relname || ' ' || relkind::text || ' ' || coalesce(array_to_string(reloptions, ','), '') || ' ' || coalesce(pg_get_indexdef(oid), '')
		FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'i', 'I', 'S')
		UNION ALL
		SELECT attrelid::regclass || '.' || attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' || coalesce(pg_get_expr(adbin, adrelid), '') || attstorage::text
		FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
		UNION ALL
		SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0
		UNION ALL
		SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = 'public'::regnamespace AND NOT tgisinternal
		UNION ALL
		SELECT oid::regprocedure || ' ' || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		ORDER BY 1`)
}

func column(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return found
}
