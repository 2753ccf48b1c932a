package jobstore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// keyOf returns the value of a key of a new job of the queue default.
func keyOf(t *testing.T, pool *pgxpool.Pool, key, args, metadata string, tags []string) string {
	t.Helper()
	set(t, pool, jobstore.Limit{Scope: jobstore.ScopeQueue, Name: "default", Most: 1, Key: key})
	var id int64
	err := pool.QueryRow(t.Context(), `INSERT INTO river_job (kind, args, metadata, tags) VALUES ('k', $1, $2, $3) RETURNING id`,
		args, metadata, tags).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	keys, _, err := jobstore.New(pool).JobKeys(t.Context(), []int64{id})
	if err != nil || len(keys) != 1 || keys[0].ID != id || keys[0].Scope != jobstore.ScopeQueue {
		t.Fatalf("%s: %+v, %v", key, keys, err)
	}
	return keys[0].Key
}

// A key has one value for every job, whatever the job contains.
func TestValuesOfKeys(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, test := range []struct{ key, args, metadata, tags, want string }{
		{"args.tenant", `{"tenant": "acme"}`, `{}`, "", "acme"},
		{"args.tenant", `{"tenant": 7}`, `{}`, "", "7"},
		{"args.tenant", `{"tenant": 7.50}`, `{}`, "", "7.50"},
		{"args.tenant", `{"tenant": true}`, `{}`, "", "true"},
		{"args.tenant", `{"tenant": null}`, `{}`, "", ""},
		{"args.tenant", `{"tenant": ""}`, `{}`, "", ""},
		{"args.tenant", `{}`, `{}`, "", ""},
		{"args.tenant", `[1, 2]`, `{}`, "", ""},
		{"args.tenant", `"tenant"`, `{}`, "", ""},
		{"args.tenant", `{"tenant": {"b": 1, "a": [2]}}`, `{}`, "", `{"a": [2], "b": 1}`},
		{"args.tenant", `{"tenant": [1, "x"]}`, `{}`, "", `[1, "x"]`},
		{"args.a.b c", `{"a": {"b c": "deep"}}`, `{}`, "", "deep"},
		{"args.a.b", `{"a": "flat"}`, `{}`, "", ""},
		{"metadata.region", `{}`, `{"region": "eu"}`, "", "eu"},
		{"metadata.region", `{}`, `[]`, "", ""},
		{"cron", `{}`, `{"forge:cron": "nightly"}`, "", "nightly"},
		{"cron", `{}`, `{}`, "", ""},
		{"tags.tenant", `{}`, `{}`, "urgent,tenants-no,tenant-acme,tenant-other", "acme"},
		{"tags.tenant", `{}`, `{}`, "tenant=a=b", "a=b"},
		{"tags.tenant", `{}`, `{}`, "tenant:a:b", "a:b"},
		{"tags.tenant", `{}`, `{}`, "tenant", ""},
		{"tags.tenant", `{}`, `{}`, "", ""},
		{"'all'", `{"tenant": "acme"}`, `{}`, "", "all"},
	} {
		if got := keyOf(t, pool, test.key, test.args, test.metadata, strings.FieldsFunc(test.tags, func(r rune) bool { return r == ',' })); got != test.want {
			t.Errorf("%s of %s %s %s: %q, want %q", test.key, test.args, test.metadata, test.tags, got, test.want)
		}
	}
}

// A value of any size has a key of at most 128 bytes, and different values have different keys.
func TestLongValuesOfKeys(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	key := func(value string) string {
		t.Helper()
		args, err := json.Marshal(map[string]string{"tenant": value})
		if err != nil {
			t.Fatal(err)
		}
		return keyOf(t, pool, "args.tenant", string(args), `{}`, []string{})
	}
	if fits := strings.Repeat("x", 128); key(fits) != fits {
		t.Errorf("a value of 128 bytes has the key %q", key(fits))
	}
	seen := map[string]bool{}
	for _, value := range []string{
		strings.Repeat("x", 129), strings.Repeat("x", 130), strings.Repeat("é", 65), strings.Repeat("\U0001f600", 33),
		strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20-1) + "y",
	} {
		got := key(value)
		if len(got) > 128 || !strings.HasPrefix(value, strings.Split(got, "...")[0]) || seen[got] {
			t.Errorf("a value of %d bytes has the key %q", len(value), got)
		}
		seen[got] = true
	}
}

// The planner replaces the function by its expression, so that a key costs no call.
func TestKeysAreInlined(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	rows, err := pool.Query(t.Context(), `EXPLAIN (VERBOSE) SELECT forge_limit_key(l.key_source, l.key_path, j.args, j.metadata, j.tags)
		FROM river_job AS j, forge_limits AS l`)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if text := strings.Join(plan, "\n"); err != nil || strings.Contains(text, "forge_limit_key") || strings.Contains(text, "forge_short_key") || !strings.Contains(text, "#>>") {
		t.Errorf("%v\n%s", err, text)
	}
}

// Earlier versions read one limit for each queue and kind, which is not above any of the limits
// in force. What they set replaces all.
func TestLimitsByKeyAndEarlierVersions(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	limits := []jobstore.Limit{
		{Scope: "job", Name: "k", Most: 4, Key: "cron"},
		{Scope: "queue", Name: "plain", Most: 9},
		{Scope: "queue", Name: "q", Most: 5},
		{Scope: "queue", Name: "q", Most: 2, Key: "args.tenant.id"},
		{Scope: "queue", Name: "r", Most: 3, Key: "'r'"},
		{Scope: "queue", Name: "r", Most: 1},
		{Scope: "queue", Name: "s", Most: 9, Per: time.Minute},
		{Scope: "job", Name: "k", Most: 8, Key: "args.a", Per: 24 * time.Hour, Burst: 5},
		{Scope: "weight", Name: "k", Most: 3},
	}
	set(t, pool, limits...)
	anyOrder := cmpopts.SortSlices(func(a, b jobstore.Limit) bool { return fmt.Sprint(a) < fmt.Sprint(b) })
	inForce := func() []jobstore.Limit {
		t.Helper()
		found, err := jobstore.New(pool).Limits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if diff := cmp.Diff(limits, inForce(), anyOrder); diff != "" {
		t.Error(diff)
	}
	if same, err := jobstore.New(pool).LimitsInForce(t.Context(), limits); err != nil || !same {
		t.Errorf("in force: %v, %v", same, err)
	}
	rows, err := pool.Query(t.Context(), `SELECT scope || ' ' || name || ' ' || most FROM forge_limits WHERE scope IN ('queue', 'job') ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if diff := cmp.Diff([]string{"job k 4", "queue plain 9", "queue q 2", "queue r 1", "queue s 9"}, earlier); err != nil || diff != "" {
		t.Error(err, diff)
	}
	exec(t, pool, `WITH wanted AS (SELECT * FROM unnest('{queue}'::text[], '{q}'::text[], '{7}'::integer[]) AS w (scope, name, most)
		), gone AS (
			DELETE FROM forge_limits AS l WHERE NOT EXISTS (SELECT FROM wanted AS w WHERE w.scope = l.scope AND w.name = l.name)
		)
		INSERT INTO forge_limits (scope, name, most) SELECT scope, name, most FROM wanted
		ON CONFLICT (scope, name) DO UPDATE SET most = excluded.most`)
	if diff := cmp.Diff([]jobstore.Limit{{Scope: "queue", Name: "q", Most: 7}}, inForce()); diff != "" {
		t.Error(diff)
	}
}

func TestUseOfKeys(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	set(t, pool, jobstore.Limit{Scope: "queue", Name: "default", Most: 2, Key: "args.tenant"}, jobstore.Limit{Scope: "queue", Name: "default", Most: 8})
	exec(t, pool, `INSERT INTO river_job (kind, args, state, queue) VALUES
		('k', '{"tenant": "a"}', 'running', 'default'), ('k', '{"tenant": "a"}', 'running', 'default'), ('k', '{}', 'running', 'default'),
		('k', '{"tenant": "a"}', 'running', 'other'), ('k', '{"tenant": "b"}', 'available', 'default'), ('k', '{"tenant": "a"}', 'available', 'default')`)
	store := jobstore.New(pool)
	tenant := limitkey.Key{Source: limitkey.Args, Path: []string{"tenant"}}
	uses, err := store.KeyUses(t.Context(), "default", tenant, jobstore.KeySearch{}, 3)
	want := []jobstore.KeyUse{{Key: "a", Running: 2, Waiting: 1}, {Key: "", Running: 1}, {Key: "b", Waiting: 1}}
	if diff := cmp.Diff(want, uses, cmpopts.IgnoreFields(jobstore.KeyUse{}, "OldestAt")); err != nil || diff != "" || uses[0].OldestAt.IsZero() || !uses[1].OldestAt.IsZero() {
		t.Errorf("%v, %+v %s", err, uses, diff)
	}
	for _, test := range []struct {
		of   jobstore.KeySearch
		want string
	}{
		{jobstore.KeySearch{Sort: "waiting"}, "a b "},
		{jobstore.KeySearch{Sort: "oldest"}, "a b "},
		{jobstore.KeySearch{Text: "B"}, "b"},
		{jobstore.KeySearch{Text: "%"}, ""},
	} {
		uses, err := store.KeyUses(t.Context(), "default", tenant, test.of, 3)
		keys := make([]string, len(uses))
		for i, use := range uses {
			keys[i] = use.Key
		}
		if got := strings.Join(keys, " "); err != nil || got != test.want {
			t.Errorf("%+v: %q, want %q: %v", test.of, got, test.want, err)
		}
	}
	if uses, err := store.KeyUses(t.Context(), "empty", tenant, jobstore.KeySearch{}, 3); err != nil || len(uses) != 0 {
		t.Errorf("a queue without jobs: %+v, %v", uses, err)
	}
	holders, err := store.Holders(t.Context(), jobstore.Places{Scope: "queue", Name: "default", Class: jobstore.ClassKey, Key: "a"}, 10)
	if diff := cmp.Diff([]int64{1, 2}, holders); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	wantPlaces := []jobstore.Places{
		{"queue", "default", "all", "", "", 3}, {"queue", "default", "key", "a", "", 2}, {"queue", "default", "key", "", "", 1}, {"queue", "default", "key", "b", "", 0},
	}
	places, err := store.PlacesTaken(t.Context(), append([]jobstore.Places{{Scope: "job", Name: "default", Class: "all"}}, wantPlaces...))
	if diff := cmp.Diff(wantPlaces, places, cmpopts.SortSlices(func(a, b jobstore.Places) bool { return fmt.Sprint(a) < fmt.Sprint(b) })); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	usages, err := store.Usages(t.Context())
	if err != nil || len(usages) != 2 || usages[0].Running != 3 || usages[0].Available != 2 || usages[0].Most != 8 || usages[1].Key != "args.tenant" || usages[1].Running != 3 {
		t.Errorf("%+v, %v", usages, err)
	}
	queue, err := store.Queue(t.Context(), "default")
	queues, listed := store.Queues(t.Context())
	if err != nil || listed != nil || queue.GlobalLimit != 8 || len(queues) == 0 || queues[0].GlobalLimit != 8 {
		t.Errorf("%+v, %+v, %v, %v", queue, queues, err, listed)
	}
}
