package migrations_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// schema is what a database has applied: the file of each version.
type schema map[int64]string

func (s schema) newest() int64 { return slices.Max(slices.Collect(maps.Keys(s))) }

// upgraded is the schema after a binary of then, which refused to insert below what
// was applied, or nil if it refused.
func (s schema) upgraded(then schema) schema {
	after := maps.Clone(s)
	for version, file := range then {
		if _, applied := s[version]; applied {
			continue
		}
		if version < s.newest() {
			return nil
		}
		after[version] = file
	}
	return after
}

func (s schema) name() string {
	var b strings.Builder
	previous := int64(-1)
	for _, version := range slices.Sorted(maps.Keys(s)) {
		file, from, _ := strings.Cut(strings.TrimSuffix(s[version], ".sql"), ".")
		stands := fmt.Sprintf("%03d_", version)
		switch {
		case from != "" || !strings.HasPrefix(file, stands):
			fmt.Fprintf(&b, " %d=%s.%s", version, file[strings.LastIndex(file, "/")+1:], from)
		case version != previous+1:
			fmt.Fprintf(&b, " %d-", version)
		}
		previous = version
	}
	return fmt.Sprintf("%d:%s", s.newest(), b.String())
}

// landedSchemas returns every schema that a database can have: that of each commit,
// and what later commits made of databases of earlier ones.
func landedSchemas(t *testing.T) (found map[string]schema, listed int64) {
	t.Helper()
	var commits []schema
	now := schema{}
	for _, line := range lines(t, "testdata/schemas.txt") {
		for _, change := range strings.Fields(line)[1:] {
			number, file, _ := strings.Cut(change, "=")
			version, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if now[version] = file; file == "" {
				delete(now, version)
			}
		}
		commits = append(commits, maps.Clone(now))
	}
	listed = now.newest()
	for _, line := range lines(t, landedPath) {
		_, file, _ := strings.Cut(line, "  ")
		if number, err := numberOf(file); err != nil {
			t.Fatal(err)
		} else if int64(number) > listed {
			now[int64(number)] = file
			commits = append(commits, maps.Clone(now))
		}
	}
	found = map[string]schema{}
	for _, commit := range commits {
		// Later binaries repair what they find; of the others those are enough that came
		// before and after what was renumbered and inserted.
		if newest := commit.newest(); newest <= 5 || newest > 23 && newest <= listed {
			for _, earlier := range slices.Collect(maps.Values(found)) {
				if after := earlier.upgraded(commit); after != nil {
					found[after.name()] = after
				}
			}
		}
		found[commit.name()] = commit
	}
	return found, listed
}

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

// A database of every schema that ever landed is brought to this binary's by what
// doctor advises, keeps its rows, and has the same tables, indexes and functions as
// one that was empty.
func TestUpgradeFromEveryLandedSchema(t *testing.T) {
	t.Parallel()
	schemas, listed := landedSchemas(t)
	want := details(t, pgtest.Pool(t))
	base := riverDatabase(t)
	for name, landed := range schemas {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := clone(t, base)
			pool := pgtest.Connect(t, address)
			landed.apply(t, pool)
			fill(t, pool)
			before := contents(t, pool)
			if name == fmt.Sprintf("%d:", listed) {
				demandRowsEverywhere(t, before)
			}
			if landed[1] == "001_forge.sql" {
				upgradeAsAdvised(t, address, pool)
			} else {
				mustUp(t, newMigrator(pool)) // without the half second that doctor takes
			}
			for table, rows := range before {
				demandKept(t, pool, table, rows)
			}
			if diff := cmp.Diff(want, details(t, pool)); diff != "" {
				t.Errorf("not as in a new database (-want +got):\n%s", diff)
			}
		})
	}
}

// upgradeAsAdvised does what doctor says of the schema, and nothing if all is well.
func upgradeAsAdvised(t *testing.T, address string, pool *pgxpool.Pool) {
	t.Helper()
	cfg := config.Default()
	cfg.Database.URL, cfg.Database.LeaderURL = address, address
	advice := func() doctor.Finding {
		for _, finding := range doctor.Examine(doctor.Gather(t.Context(), cfg, nil)) {
			if finding.Check == "schema" {
				return finding
			}
		}
		t.Fatal("doctor says nothing of the schema")
		return doctor.Finding{}
	}
	if finding := advice(); finding.Status != doctor.OK {
		if !strings.Contains(finding.Remedy, "run forge migrate up") {
			t.Fatalf("doctor: %+v", finding)
		}
		mustUp(t, newMigrator(pool))
	}
	if finding := advice(); finding.Status != doctor.OK {
		t.Errorf("after what doctor advised: %+v", finding)
	}
}

// What came out of order can be taken back, and applied again.
func TestDownAfterAnUpgradeOutOfOrder(t *testing.T) {
	t.Parallel()
	schemas, _ := landedSchemas(t)
	base := riverDatabase(t)
	tried := 0
	for name, landed := range schemas {
		_, late := landed[26]
		_, inserted := landed[24]
		_, partitioned := landed[34]
		if !late || inserted && partitioned || landed[1] != "001_forge.sql" {
			continue
		}
		tried++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Connect(t, clone(t, base))
			landed.apply(t, pool)
			m := newMigrator(pool)
			mustUp(t, m)
			want := details(t, pool)
			for forgeSteps(applied(status(t, m))) > 0 {
				if err := m.Down(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			mustUp(t, m)
			if diff := cmp.Diff(want, details(t, pool)); diff != "" {
				t.Errorf("down and up changed the schema:\n%s", diff)
			}
		})
	}
	if tried < 2 {
		t.Errorf("%d schemas lack numbers below their newest, want those without 24 and without 33 to 35", tried)
	}
}

// A migration that this binary does not know keeps it from a schema even if its number
// is below the newest.
func TestUnknownMigrationIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO forge_migrations (version_id, is_applied) VALUES (25, true)`)
	err := newMigrator(pool).Up(t.Context())
	if err == nil || !strings.Contains(err.Error(), "forge's migration 25 is applied, which this binary does not know") {
		t.Errorf("Up = %v", err)
	}
}

// apply brings an empty database to the schema as the binary of its commit did.
func (s schema) apply(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	files := fstest.MapFS{}
	for version, file := range s {
		body, err := fs.ReadFile(os.DirFS("."), file)
		if err != nil {
			t.Fatal(err)
		}
		files[fmt.Sprintf("%03d_x.sql", version)] = &fstest.MapFile{Data: body}
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

// riverDatabase returns the address of a database with River's tables alone.
func riverDatabase(t *testing.T) string {
	t.Helper()
	address := pgtest.EmptyURL(t)
	pool, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close() // a database with sessions cannot be cloned
	river, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := river.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	return address
}

// clone returns the address of a copy of a database.
func clone(t *testing.T, of string) string {
	t.Helper()
	address, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	template := strings.TrimPrefix(address.Path, "/")
	name := fmt.Sprintf("%s_%d", template, clones.Add(1))
	address.Path = "/postgres"
	admin := pgtest.Connect(t, address.String())
	mustExec(t, admin, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template))
	t.Cleanup(func() { mustExec(t, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	address.Path = "/" + name
	return address.String()
}

var clones atomic.Int64

var intoSQL = regexp.MustCompile(`^INSERT INTO (\w+)`)

// fill puts rows into the tables that there are.
func fill(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	tables := names(t, pool)
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
