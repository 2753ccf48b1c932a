package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

const invoices = `
[jobs.invoice]
kind = "shell"
command = ["sh", "-c", "echo invoice $FORGE_ARGS"]
[queues.mail]
`

// sqlPrograms are the programs of docs/sql.md by the language of their block, with how they run.
var sqlPrograms = []struct {
	language, file, order, install string
	// has reports whether the machine has what the program needs.
	has []string
	run []string
}{
	{"python", "invoice.py", "43", "Debian: apt-get install python3-psycopg", []string{"/usr/bin/python3", "-c", "import psycopg"}, []string{"/usr/bin/python3", "invoice.py"}},
	{"ruby", "invoice.rb", "45", "Debian: apt-get install ruby-pg", []string{"ruby", "-e", `require "pg"`}, []string{"ruby", "invoice.rb"}},
	{"java", "Invoice.java", "46", "Debian: apt-get install default-jdk-headless libpostgresql-jdbc-java", []string{"test", "-x", "/usr/bin/javac", "-a", "-f", jdbcDriver}, []string{"java", "-cp", jdbcDriver, "Invoice.java"}},
}

const jdbcDriver = "/usr/share/java/postgresql.jar"

// Each program of docs/sql.md, word for word, inserts its order and a job that a node works.
func TestProgramsOfSQLDocument(t *testing.T) {
	t.Parallel()
	c := newCluster(t, invoices)
	c.start("a")
	c.exec(`CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL)`)
	document := readFile(t, "docs/sql.md")
	user, host, _ := strings.Cut(strings.TrimPrefix(c.url, "postgres://"), "@")
	name, password, _ := strings.Cut(user, ":")
	separator := map[bool]string{true: "&", false: "?"}[strings.Contains(host, "?")]
	w := workshop{t: t, dir: t.TempDir(), env: append(os.Environ(), "DATABASE_URL="+c.url,
		fmt.Sprintf("JDBC_URL=jdbc:postgresql://%s%suser=%s&password=%s", host, separator, name, password))}

	orders := []string{"44"}
	for _, program := range sqlPrograms {
		if exec.CommandContext(t.Context(), program.has[0], program.has[1:]...).Run() != nil { //nolint:gosec // the commands are above
			pgtest.LeftOut(t, program.language, program.has[0]+" with its driver", program.install)
			continue
		}
		w.write(program.file, theBlock(t, document, program.language))
		w.run(program.run[0], program.run[1:]...)
		orders = append(orders, program.order)
	}
	w.write("package.json", `{"type": "module"}`)
	w.write("invoice.ts", theBlock(t, document, "typescript"))
	script, err := filepath.Abs("../../scripts/client-tools")
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.TrimSpace(w.output(script))
	if err := os.Symlink(modules, filepath.Join(w.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	w.run(filepath.Join(modules, ".bin", "tsc"), "--strict", "--target", "es2022", "--module", "nodenext", "invoice.ts")
	w.run("node", "invoice.js")

	for _, order := range orders {
		id := fmt.Sprint(c.number(`SELECT coalesce(max(id), 0) FROM river_job WHERE args = jsonb_build_object('order', $1::bigint) AND unique_key IS NOT NULL`, order))
		c.awaitState(id, "completed")
		if c.number(`SELECT count(*) FROM orders WHERE id = $1 AND customer = 'Ada'`, order) != 1 {
			t.Errorf("order %s is missing", order)
		}
	}
}

// theBlock returns the only block of a language.
func theBlock(t *testing.T, document, language string) string {
	t.Helper()
	found := blocks(document, language)
	if len(found) != 1 {
		t.Fatalf("%d blocks of %s, want 1", len(found), language)
	}
	return found[0]
}

// The statements of docs/sql.md do what it says, and a node runs a job at the commit.
func TestStatementsOfSQLDocument(t *testing.T) {
	t.Parallel()
	c := newCluster(t, invoices)
	c.start("a")
	c.exec(`CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL)`)
	for _, block := range blocks(readFile(t, "docs/sql.md"), "sql") {
		if !strings.HasPrefix(block, "GRANT") {
			c.exec(block)
		}
	}
	if c.number(`SELECT count(*) FROM river_job WHERE state = 'scheduled' AND queue = 'mail' AND args = '{"order": 41}'`) != 1 {
		t.Error("the job of the first transaction is not scheduled")
	}
	for _, order := range []string{"41", "42"} {
		id := fmt.Sprint(c.number(`SELECT max(id) FROM river_job WHERE args = jsonb_build_object('order', $1::bigint) AND queue = 'default'`, order))
		c.awaitState(id, "completed")
		c.demand(0, fmt.Sprintf(`invoice {"order": %s}`, order), "job", "logs", id)
	}
}

// River's client for Python inserts with this statement: riverqueue 0.7.0, job_insert_fast_many
// in river_job.py. SQLAlchemy replaces :p1 by the driver's parameters and \:\: by ::.
const pythonInsert = `-- name: job_insert_fast_many :many
INSERT INTO river_job(
    args,
    kind,
    max_attempts,
    metadata,
    priority,
    queue,
    scheduled_at,
    state,
    tags,
    unique_key,
    unique_states
) SELECT
    unnest($1::jsonb[]),
    unnest($2::text[]),
    unnest($3::smallint[]),
    unnest($4::jsonb[]),
    unnest($5::smallint[]),
    unnest($6::text[]),
    unnest($7::timestamptz[]),
    unnest($8::river_job_state[]),
    -- Unnest on a multi-dimensional array will fully flatten the array, so we
    -- encode the tag list as a comma-separated string and split it in the
    -- query.
    string_to_array(unnest($9::text[]), ','),

    nullif(unnest($10::bytea[]), ''),
    -- Strings of bits are used for the input type here to make sqlalchemy play nicely with bit(8):
    nullif(unnest($11::text[]), '')::bit(8)

ON CONFLICT (unique_key)
    WHERE unique_key IS NOT NULL
      AND unique_states IS NOT NULL
      AND river_job_state_in_bitmask(unique_states, state)
    -- Something needs to be updated for a row to be returned on a conflict.
    DO UPDATE SET kind = EXCLUDED.kind
RETURNING river_job.id, river_job.args, river_job.attempt, river_job.attempted_at, river_job.attempted_by, river_job.created_at, river_job.errors, river_job.finalized_at, river_job.kind, river_job.max_attempts, river_job.metadata, river_job.priority, river_job.queue, river_job.state, river_job.scheduled_at, river_job.tags, river_job.unique_key, river_job.unique_states, (xmax != 0) AS unique_skipped_as_duplicate
`

// River's client for Ruby with Sequel (riverqueue-sequel 0.10.1, driver.rb) makes this statement.
const sequelInsert = `INSERT INTO "river_job" ("args", "kind", "max_attempts", "priority", "queue", "state", "scheduled_at", "tags", "unique_key", "unique_states") VALUES ('{"order":52}', 'invoice', 25, 1, 'default', 'available', '2026-01-01 10:00:00.000000+0000', ARRAY[]::text[], '\x%s', '11110101') ON CONFLICT (unique_key) WHERE (unique_key IS NOT NULL AND unique_states IS NOT NULL AND river_job_state_in_bitmask(unique_states, state)) DO UPDATE SET "kind" = "excluded"."kind" RETURNING *, (xmax != 0) AS unique_skipped_as_duplicate`

// With ActiveRecord (riverqueue-activerecord 0.10.1, driver.rb) it is this one: the predicate is
// that of the index river_job_unique_idx, which ActiveRecord reads from the database.
const activeRecordInsert = `INSERT INTO "river_job" ("args","kind","max_attempts","priority","queue","state","scheduled_at","tags","unique_key","unique_states") VALUES ('{"order":53}', 'invoice', 25, 1, 'default', 'available', '2026-01-01 10:00:00', '{}', '\x%s', '11110101') ON CONFLICT ("unique_key") WHERE %s DO UPDATE SET kind = EXCLUDED.kind RETURNING *, (xmax != 0) AS unique_skipped_as_duplicate`

const uniquePredicateSQL = `SELECT pg_get_expr(indpred, indrelid) FROM pg_index WHERE indexrelid = 'river_job_unique_idx'::regclass`

// Rows that River's clients for Python and Ruby insert are worked, once each.
func TestRowsOfOtherRiverClientsAreWorked(t *testing.T) {
	t.Parallel()
	c := newCluster(t, invoices)
	c.start("a")
	key := func(args string) string {
		var key string
		if err := c.pool.QueryRow(t.Context(), `SELECT encode(sha256(convert_to('&kind=invoice&args=' || $1::text, 'UTF8')), 'hex')`, args).Scan(&key); err != nil {
			t.Fatal(err)
		}
		return key
	}
	var predicate string
	if err := c.pool.QueryRow(t.Context(), uniquePredicateSQL).Scan(&predicate); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := c.pool.Exec(t.Context(), pythonInsert, []string{`{"order": 50}`, `{"order": 51}`}, []string{"invoice", "invoice"}, []int16{25, 25}, []string{"{}", "{}"},
			[]int16{1, 1}, []string{"default", "default"}, []string{"2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"}, []string{"available", "scheduled"},
			[]string{"one_tag,two-tag", ""}, [][]byte{[]byte("0123456789abcdef0123456789abcdef"), []byte("1123456789abcdef0123456789abcdef")}, []string{"11110101", "11110101"})
		if err != nil {
			t.Fatal(err)
		}
		c.exec(fmt.Sprintf(sequelInsert, key(`{"order":52}`)))
		c.exec(fmt.Sprintf(activeRecordInsert, key(`{"order":53}`), predicate))
		c.exec(`SELECT forge_enqueue('invoice', '{"order": 52}', '{"unique_args": true}'), forge_enqueue('invoice', '{"order": 53}', '{"unique_args": true}')`)
	}
	for _, order := range []string{"50", "51", "52", "53"} {
		if n := c.number(`SELECT count(*) FROM river_job WHERE args = jsonb_build_object('order', $1::bigint)`, order); n != 1 {
			t.Errorf("order %s has %d jobs", order, n)
		}
		id := fmt.Sprint(c.number(`SELECT max(id) FROM river_job WHERE args = jsonb_build_object('order', $1::bigint)`, order))
		c.awaitState(id, "completed")
	}
}
