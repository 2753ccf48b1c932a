package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/migrations"
)

// sqlEnqueue calls forge_enqueue.
func sqlEnqueue(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, kind, args, opts string,
) (id int64, err error) {
	err = db.QueryRow(ctx, `SELECT forge_enqueue($1, $2::text::jsonb, $3::text::jsonb)`, kind, args, opts).Scan(&id)
	return id, err
}

func mustSQLEnqueue(t *testing.T, pool *pgxpool.Pool, kind, args, opts string) int64 {
	t.Helper()
	id, err := sqlEnqueue(t.Context(), pool, kind, args, opts)
	if err != nil {
		t.Fatalf("%s %s %s: %v", kind, args, opts, err)
	}
	return id
}

// refusal returns the message and the hint of an error of the functions.
func refusal(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "22023" {
		return refused.Message + "; " + refused.Hint
	}
	return fmt.Sprint(err)
}

// A job that is enqueued with SQL has the settings of its kind and of its options.
func TestSQLEnqueueAppliesSettings(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, enqueueFile)
	for _, test := range []struct{ kind, args, opts, want string }{
		{"report", `{}`, `{}`, `available slow 3 7 {} {"forge:tags": {"zone": "a"}, "forge:capability": "gpu"} now`},
		{"plain", `{"a": 1}`, `{"queue": "mail", "priority": 2, "max_attempts": 9, "tags": ["big_one", "b-2"], "metadata": {"trace": "x"}}`, `available mail 2 9 {big_one,b-2} {"trace": "x"} now`},
		{"plain", `{}`, `{"at": "2099-01-31T09:00:00+02:00"}`, `scheduled default 1 3 {} {} 2099-01-31T07:00:00`},
		{"plain", `{}`, `{"at": "2001-01-31T09:00:00Z", "queue": null, "unique": "", "no_unique": false, "tags": []}`, `available default 1 3 {} {} now`},
		{"plain", `{}`, `{"delay": "1h30m"}`, `scheduled default 1 3 {} {} delayed`},
		{"wave", `{}`, `{}`, `available default 1 25 {} {} now`},
		{"wave", `{}`, `{"weight": 5, "metadata": {"a": 1}}`, `available default 1 25 {} {"a": 1, "forge:weight": 5} now`},
		{"plain", `{}`, `{"weight": 1000000, "unique": "heavy", "replace": true}`, `available default 1 3 {} {"forge:unique": {"replace": true}, "forge:weight": 1000000} now`},
		{"greet", `{"name": "Ada"}`, `{}`, `available slow 3 25 {} {} now`},
	} {
		id := mustSQLEnqueue(t, pool, test.kind, test.args, test.opts)
		got := rows(t, pool, `SELECT concat_ws(' ', state, queue, priority, max_attempts, tags::text, metadata, CASE
			WHEN abs(extract(epoch FROM scheduled_at - created_at)) < 1 THEN 'now'
			WHEN scheduled_at BETWEEN created_at + interval '89 minutes' AND created_at + interval '91 minutes' THEN 'delayed'
			ELSE to_char(scheduled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') END)
			FROM river_job WHERE id = $1 AND kind = $2 AND args = $3::text::jsonb`, id, test.kind, test.args)
		if !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s %s: got %q, want %q", test.kind, test.opts, got, test.want)
		}
	}
}

// A kind that leaves the configuration loses its settings.
func TestSQLEnqueueFollowsConfiguration(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, enqueueFile)
	exec(t, pool, `INSERT INTO forge_config (hash, applied_by, body, applied_at) VALUES ('next', 'test', '{"jobs": {"plain": {"queue": "other"}}}', now() + interval '1 second')`)
	got := rows(t, pool, `SELECT kind || settings::text FROM forge_kinds`)
	if !slices.Equal(got, []string{`plain{"queue": "other"}`}) {
		t.Errorf("got %q", got)
	}
}

func TestSQLEnqueueRefuses(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, enqueueFile)
	long := strings.Repeat("x", 70_000)
	for _, test := range []struct{ kind, args, opts, want string }{
		{"", `{}`, `{}`, `kind: no name of a kind (got ''); Want 1 to 127 printable characters.`},
		{"plain", `[1]`, `{}`, `args: wrong type (got array); Want a JSON object such as {"name": "Ada"}.`},
		{"plain", `{"a": "` + long + `"}`, `{}`, `args: too large (got 70009 bytes as JSON); Want at most 64 KiB.`},
		{"plain", strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), `{}`, `args: nested too deeply; Want at most 64 levels.`},
		{"plain", `{"a": [1e309]}`, `{}`, `args: a number out of range; Want 1e-323 to 1.7e308, or 0.`},
		{"greet", `{"name": 7, "at": [1, 2.5]}`, `{}`, `args.at[1]: wrong type (got number); want integer; args.name: wrong type (got number); want string; Want arguments that match the schema of the kind.`},
		{"greet", `{}`, `{}`, `args.name: missing; Want arguments that match the schema of the kind.`},
		{"plain", `{}`, `[]`, `opts: wrong type (got array); Want an object such as {"queue": "mail"}.`},
		{"plain", `{}`, `{"prioritty": 1}`, `opts.prioritty: no such option; Want one of at, debounce, delay, max_attempts, max_wait, metadata, no_unique, priority, queue, replace, tags, throttle, unique, unique_args, unique_period, unique_queue, unique_states, weight.`},
		{"plain", `{}`, `{"run_at": "x"}`, `opts.run_at: no such option; Want at.`},
		{"plain", `{}`, `{"priority": "1"}`, `opts.priority: wrong type (got string); Want number.`},
		{"plain", `{}`, `{"priority": 5}`, `opts.priority: out of range (got 5); Want a whole number from 1 to 4.`},
		{"plain", `{}`, `{"max_attempts": 1.5}`, `opts.max_attempts: out of range (got 1.5); Want a whole number from 1 to 1000.`},
		{"plain", `{}`, `{"weight": 0}`, `opts.weight: out of range (got 0); Want a whole number from 1 to 1000000.`},
		{"plain", `{}`, `{"weight": 1.5}`, `opts.weight: out of range (got 1.5); Want a whole number from 1 to 1000000.`},
		{"plain", `{}`, `{"weight": 1000001}`, `opts.weight: out of range (got 1000001); Want a whole number from 1 to 1000000.`},
		{"plain", `{}`, `{"weight": "5"}`, `opts.weight: wrong type (got string); Want number.`},
		{"plain", `{}`, `{"queue": "a b"}`, `opts.queue: no name of a queue (got a b); Want at most 64 letters and digits, with single - or _ between them.`},
		{"plain", `{}`, `{"tags": ["ok-1", "no good"]}`, `opts.tags: no tag, or too many (got no good); Want at most 100 tags, each of 3 to 255 letters, digits, - and _, with neither end a -.`},
		{"plain", `{}`, `{"tags": [1]}`, `opts.tags: wrong type (got [1]); Want an array of strings.`},
		{"plain", `{}`, `{"at": "2027-01-31T09:00:00"}`, `opts.at: no time with a zone (got 2027-01-31T09:00:00); Want a time such as 2027-01-31T09:00:00Z.`},
		{"plain", `{}`, `{"at": "2027-13-31T09:00:00Z"}`, `opts.at: no time with a zone (got 2027-13-31T09:00:00Z); Want a time such as 2027-01-31T09:00:00Z.`},
		{"plain", `{}`, `{"delay": "10 minutes"}`, `opts.delay: no duration, or a longer one than 366d (got 10 minutes); Want a duration such as 90s, 1h30m or 7d.`},
		{"plain", `{}`, `{"delay": "1s", "at": "2027-01-31T09:00:00Z"}`, `opts: options that exclude each other; Want only one of at and delay.`},
		{"plain", `{}`, `{"unique": "a", "unique_args": true}`, `opts: options that exclude each other; Want only one of unique, no_unique and the other unique_ options.`},
		{"plain", `{}`, `{"unique_args": "a"}`, `opts.unique_args: wrong type (got string); Want true, or an array of names.`},
		{"plain", `{}`, `{"unique_period": "1ms"}`, `opts.unique_period: no duration, or out of range (got 1ms); Want 1s to 366d.`},
		{"plain", `{}`, `{"unique_states": ["running"]}`, `opts.unique_states: unknown states, or without those that always count (got ["running"]); Want available, pending, running and scheduled, and any of retryable, completed, cancelled and discarded.`},
		{"plain", `{}`, `{"metadata": {"forge:cron": "x"}}`, `opts.metadata: a reserved name (got forge:cron); Want names other than cancel_attempted_at and those that begin with forge: or river:.`},
		{"plain", `{}`, `{"metadata": {"a": "` + long + `"}}`, `opts.metadata: too large (got 70009 bytes as JSON); Want at most 64 KiB.`},
	} {
		_, err := sqlEnqueue(t.Context(), pool, test.kind, test.args, test.opts)
		if got := refusal(err); got != test.want {
			t.Errorf("%s %.60s %.60s: got %s, want %s", test.kind, test.args, test.opts, got, test.want)
		}
	}
	if left := rows(t, pool, `SELECT id::text FROM river_job`); len(left) > 0 {
		t.Errorf("inserted %v", left)
	}
}

func TestSQLEnqueueManyIsBounded(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, "")
	many := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`{"kind": "k"},`, n), ",") + "]" }
	for jobsText, want := range map[string]string{
		many(1001):                   `jobs: too many (got 1001); Want at most 1000 a call.`,
		`{}`:                         `jobs: wrong type (got object); Want an array such as [{"kind": "report", "args": {}}].`,
		`[{"kind": "k"}, 7]`:         `jobs[1]: wrong type (got number); Want an object such as {"kind": "report", "args": {}}.`,
		`[{"kind": 7}]`:              `jobs[0].kind: wrong type (got number); Want string.`,
		`[{"args": {}}]`:             `jobs[0].kind: no name of a kind (got NULL); Want 1 to 127 printable characters.`,
		`[{"kind": "k", "args": 1}]`: `jobs[0].args: wrong type (got number); Want a JSON object such as {"name": "Ada"}.`,
		`[{"kind": "k", "queu": 1}]`: `jobs[0].queu: no such option; Want one of at, debounce, delay, max_attempts, max_wait, metadata, no_unique, priority, queue, replace, tags, throttle, unique, unique_args, unique_period, unique_queue, unique_states, weight.`,
	} {
		_, err := pool.Exec(t.Context(), `SELECT * FROM forge_enqueue_many($1::text::jsonb)`, jobsText)
		if got := refusal(err); got != want {
			t.Errorf("%.40s: got %s, want %s", jobsText, got, want)
		}
	}
	if _, err := pool.Exec(t.Context(), `SELECT * FROM forge_enqueue_many($1::text::jsonb)`, many(1000)); err != nil {
		t.Error(err)
	}
	if got := rows(t, pool, `SELECT count(*)::text FROM river_job`); !slices.Equal(got, []string{"1000"}) {
		t.Errorf("got %s jobs", got)
	}
}

// The database refuses nothing that the API accepts, and names the same mismatches for the
// keywords that it checks.
func TestSQLSchemaAgreesWithTheAPI(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, "")
	const checked = `{"required": ["customer", "items"], "additionalProperties": false, "properties": {
		"customer": {"type": "string", "minLength": 2, "maxLength": 4}, "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}}}},
		"speed": {"enum": ["slow", "fast", 3, null, {"a": 1}]}, "who": {"const": 7}, "how": {"type": ["string", "null"]}, "never": false, "map": {"additionalProperties": {"type": "boolean"}, "maxProperties": 2}}}`
	for _, args := range []string{
		`{"customer": "Ada", "items": [{"id": 1}]}`, `{"customer": "Zoë😀", "items": [{"id": 8.0}], "speed": 3.0, "who": 7.0, "how": null, "map": {"a": true}}`,
		`{}`, `{"customer": 7, "items": [{"id": 0}, {"id": 9}, {}]}`, `{"customer": "A", "items": []}`, `{"customer": "Adaaa", "items": {}}`,
		`{"customer": "Ada", "items": [{"id": 1.5}, 7]}`, `{"customer": "Ada", "items": [{"id": 1}], "speed": "quick", "who": 8, "how": 1, "never": 1, "map": {"a": 1, "b": true, "c": null}}`,
		`{"customer": "Ada", "items": [{"id": 1}], "custommer": 1, "speed": {"a": 1}}`,
	} {
		compareSchema(t, pool, checked, args, true)
	}
	for schema, args := range map[string]string{
		`{"properties": {"a": {"pattern": "^x", "format": "date", "anyOf": [{"type": "null"}]}}}`:                                                          `{"a": "y"}`,
		`{"patternProperties": {"^x": {}}, "additionalProperties": false}`:                                                                                 `{"x1": 1}`,
		`{"properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": "integer"}}}`:                                                                `{"a": 1}`,
		`{"properties": {"a": {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}}}`:                                                       `{"a": ["x", 1]}`,
		`{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/x", "type": "object", "required": ["a"], "definitions": {"x": {}}}`: `{}`,
		`{"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"minimum": 1, "exclusiveMinimum": true}}}`:                            `{"a": 2}`,
		`{"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"items": [{"type": "string"}]}}}`:                                     `{"a": ["x"]}`,
		`{"properties": {"a": true}, "additionalProperties": true, "minProperties": 1}`:                                                                    `{"a": 1, "b": 2}`,
	} {
		compareSchema(t, pool, schema, args, false)
	}
}

// compareSchema checks that the database refuses args as the API does. Without exact it may
// refuse less.
func compareSchema(t *testing.T, pool *pgxpool.Pool, schema, args string, exact bool) {
	t.Helper()
	compiled, err := argschema.Compile([]byte(schema))
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	var want []string
	for _, mismatch := range compiled.Check(json.RawMessage(args)) {
		want = append(want, "args."+mismatch.String())
	}
	got := rows(t, pool, `SELECT at || ': ' || problem FROM forge_schema_mismatches($1::text::jsonb, $2::text::jsonb, 'args')`, schema, args)
	slices.Sort(want)
	slices.Sort(got)
	if exact && !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", args, got, want)
	}
	for _, mismatch := range got {
		if !slices.Contains(want, mismatch) {
			t.Errorf("%s refuses %s in the database alone: %s", schema, args, mismatch)
		}
	}
}

// A job exists if its transaction commits, and its notification comes with the commit.
func TestSQLEnqueueIsTransactional(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, "")
	listener, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Release()
	if _, err := listener.Exec(t.Context(), `LISTEN "public.river_insert"`); err != nil {
		t.Fatal(err)
	}
	for _, commit := range []bool{false, true} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id, err := sqlEnqueue(t.Context(), tx, "k", `{}`, fmt.Sprintf(`{"queue": "commit-%v"}`, commit))
		if err != nil {
			t.Fatal(err)
		}
		if got := rows(t, pool, `SELECT kind FROM river_job`); len(got) != 0 {
			t.Errorf("job %d is visible before the commit", id)
		}
		if end := map[bool]func(context.Context) error{true: tx.Commit, false: tx.Rollback}[commit]; end(t.Context()) != nil {
			t.Fatal("cannot end the transaction")
		}
	}
	if got := rows(t, pool, `SELECT queue FROM river_job`); !slices.Equal(got, []string{"commit-true"}) {
		t.Errorf("got %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	note, err := pgtest.WaitForNotification(ctx, listener.Conn())
	if err != nil || !strings.Contains(note.Payload, `"queue" : "commit-true"`) {
		t.Errorf("got %+v, %v", note, err)
	}
}

// A program's login needs only the rights that docs/sql.md grants, whatever its search_path is.
func TestSQLEnqueueNeedsFewRights(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, enqueueFile)
	role := strings.Join(rows(t, pool, `SELECT 'app_' || current_database()`), "")
	exec(t, pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), `DROP OWNED BY `+role)
		_, _ = pool.Exec(context.Background(), `DROP ROLE `+role)
	})
	for statement := range strings.SplitSeq(sqlGrants(t), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			exec(t, pool, strings.ReplaceAll(statement, "TO app", "TO "+role))
		}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, sql := range []string{
		`SET LOCAL ROLE ` + role, `SET LOCAL search_path = pg_catalog`,
		`SELECT public.forge_enqueue('report', '{"a": 1}')`, `SELECT public.forge_enqueue('report', '{"a": 1}')`,
		`SELECT public.forge_enqueue(kind => 'plain', opts => '{"unique": "a", "weight": 2}')`,
		`RESET ROLE`, `REVOKE ALL ON public.forge_sql_enqueued FROM ` + role, `SET LOCAL ROLE ` + role,
		`SELECT public.forge_enqueue(kind => 'wave')`,
		`SELECT public.forge_cancel(id) FROM public.river_job`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, pool, `SELECT kind || ' ' || state FROM river_job ORDER BY id`); !slices.Equal(got, []string{"report cancelled", "plain cancelled", "wave cancelled"}) {
		t.Errorf("got %q", got)
	}
	if got := rows(t, pool, `SELECT kind FROM forge_sql_enqueued ORDER BY id`); !slices.Equal(got, []string{"report", "plain"}) {
		t.Errorf("counted %q", got)
	}
}

func TestSQLCancel(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, "")
	id := mustSQLEnqueue(t, pool, "k", `{}`, `{"delay": "1h", "unique": "a"}`)
	running := mustSQLEnqueue(t, pool, "k", `{}`, `{}`)
	exec(t, pool, `UPDATE river_job SET state = 'running', attempted_by = '{a}' WHERE id = $1`, running)
	got := rows(t, pool, `SELECT forge_cancel(id)::text FROM unnest($1::bigint[]) WITH ORDINALITY AS u (id, n) ORDER BY n`, []int64{id, id, running, 999})
	if want := []string{"true", "false", "true", "false"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got = rows(t, pool, `SELECT concat_ws(' ', state, metadata ? 'cancel_attempted_at', finalized_at IS NOT NULL) FROM river_job ORDER BY id`)
	if want := []string{"cancelled t t", "running t f"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got = rows(t, pool, `SELECT concat_ws(' ', data -> 'ids', data ->> 'by' LIKE 'sql:%') FROM forge_events WHERE type = 'job_cancelled' ORDER BY id`)
	if want := []string{fmt.Sprintf("[%d] t", id), fmt.Sprintf("[%d] t", running)}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if again := mustSQLEnqueue(t, pool, "k", `{}`, `{"unique": "a"}`); again == id {
		t.Error("a cancelled job holds its key")
	}
}

// sqlGrants returns the grants of docs/sql.md.
func sqlGrants(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```sql\nGRANT")
	grants, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/sql.md has no grants")
	}
	return "GRANT" + regexp.MustCompile(`(?m) --.*$`).ReplaceAllString(grants, "")
}

// The functions work through a pooler in transaction mode.
func TestSQLEnqueueThroughTransactionPooler(t *testing.T) {
	t.Parallel()
	address := pgtest.StartBouncer(t, pgtest.URL(t), "transaction", "default_pool_size = 1").URL()
	enqueueTwice(t, pgtest.ConnectBy(t, address, pgx.QueryExecModeSimpleProtocol), "")
}

// The functions work in any schema, even if another one has them too.
func TestSQLEnqueueInAnotherSchema(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	pool := pgtest.Connect(t, address)
	exec(t, pool, `CREATE SCHEMA other_one`)
	settings, err := pgxpool.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	settings.ConnConfig.RuntimeParams["search_path"] = "other_one"
	other, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	if err := migrations.New(other, slog.New(slog.DiscardHandler)).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	enqueueTwice(t, pool, "other_one.")
	if got := rows(t, pool, `SELECT kind FROM public.river_job`); len(got) > 0 {
		t.Errorf("public got %v", got)
	}
	if got := rows(t, pool, `SELECT kind FROM other_one.river_job`); !slices.Equal(got, []string{"k"}) {
		t.Errorf("got %q", got)
	}
}

// enqueueTwice enqueues a job and its duplicate, and cancels it.
func enqueueTwice(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	got := rows(t, pool, `SELECT `+schema+`forge_enqueue('k', '{"a": 1}', '{"unique_args": true}')::text`)
	again := rows(t, pool, `SELECT concat_ws(' ', id, existing) FROM `+schema+`forge_enqueue_many('[{"kind": "k", "args": {"a": 1}, "unique_args": true}]')`)
	if !slices.Equal(again, []string{got[0] + " t"}) {
		t.Errorf("got %q after job %s", again, got[0])
	}
	if cancelled := rows(t, pool, `SELECT `+schema+`forge_cancel($1::bigint)::text`, got[0]); !slices.Equal(cancelled, []string{"true"}) {
		t.Errorf("got %q", cancelled)
	}
}
