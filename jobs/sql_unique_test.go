package jobs_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

type orderArgs struct {
	Customer string         `json:"customer"`
	Amount   float64        `json:"a<mount"`
	Lines    []string       `json:"lines,omitempty"`
	More     map[string]any `json:"möre"`
}

func (orderArgs) Kind() string { return "order" }

type taggedArgs struct {
	Month string `json:"month" river:"unique"`
	Extra string `json:"extra"`
	City  string `json:"city" river:"unique"`
}

func (taggedArgs) Kind() string { return "tagged" }

// keyOf returns the unique key and states of a job, which it then deletes.
func keyOf(t *testing.T, pool *pgxpool.Pool, id int64) string {
	t.Helper()
	return strings.Join(rows(t, pool, `DELETE FROM river_job WHERE id = $1 RETURNING coalesce(encode(unique_key, 'hex') || ' ' || unique_states::text, 'none')`, id), ", ")
}

// Jobs that are enqueued with SQL have the unique keys of jobs of a River client, byte for
// byte.
func TestSQLEnqueueHasKeysOfRiver(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, "")
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		t.Fatal(err)
	}
	due := time.Date(2098, 3, 4, 5, 6, 7, 0, time.UTC)
	strange := orderArgs{
		"Zoë <a&b> \"q\" \\ \u2028 \b\f\n\t\x01\x7f 😀", 12.50,
		[]string{"b", "a"},
		map[string]any{"zz": 1, "b": map[string]any{"y": nil, "é<": true, "x": []any{map[string]any{"k": 1, "a": 2}}}},
	}
	states := []string{"available", "pending", "running", "scheduled", "discarded"}
	for _, test := range []struct {
		args river.JobArgs
		by   river.UniqueOpts
		opts string
	}{
		{strange, river.UniqueOpts{ByArgs: true}, `{"unique_args": true}`},
		{orderArgs{}, river.UniqueOpts{ByArgs: true}, `{"unique_args": true}`},
		{strange, river.UniqueOpts{ByQueue: true}, `{"unique_queue": true, "queue": "mail"}`},
		{strange, river.UniqueOpts{ByPeriod: 24 * time.Hour}, `{"unique_period": "24h"}`},
		{strange, river.UniqueOpts{ByPeriod: 7 * 24 * time.Hour}, `{"unique_period": "1w"}`},
		{strange, river.UniqueOpts{ByPeriod: 17*time.Minute + 1500*time.Millisecond}, `{"unique_period": "17m1.5s"}`},
		{strange, river.UniqueOpts{ByArgs: true, ByPeriod: 15 * time.Minute, ByQueue: true}, `{"unique_args": true, "unique_period": "15m", "unique_queue": true, "queue": "mail"}`},
		{strange, river.UniqueOpts{ByArgs: true, ByState: statesOf(states)}, `{"unique_args": true, "unique_states": ["available", "pending", "running", "scheduled", "discarded"]}`},
		{taggedArgs{"May", "x", "Bonn"}, river.UniqueOpts{ByArgs: true}, `{"unique_args": ["month", "city"]}`},
		{strange, river.UniqueOpts{}, `{}`},
	} {
		var own struct{ Queue string }
		if err := json.Unmarshal([]byte(test.opts), &own); err != nil {
			t.Fatal(err)
		}
		result, err := client.Insert(t.Context(), test.args, &river.InsertOpts{UniqueOpts: test.by, ScheduledAt: due, Queue: own.Queue})
		if err != nil {
			t.Fatal(err)
		}
		want := keyOf(t, pool, result.Job.ID)
		encoded, err := json.Marshal(test.args)
		if err != nil {
			t.Fatal(err)
		}
		opts := strings.Replace(test.opts, "{", `{"at": "2098-03-04T05:06:07Z",`, 1)
		opts = strings.Replace(opts, ",}", "}", 1)
		if got := keyOf(t, pool, mustSQLEnqueue(t, pool, test.args.Kind(), string(encoded), opts)); got != want {
			t.Errorf("%s %s: got %s, want River's %s", test.args.Kind(), test.opts, got, want)
		}
	}
}

// The command, the API and SQL make the same unique key of the same arguments, however these
// are written.
func TestSQLEnqueueHasKeysOfEnqueuer(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, strings.Replace(enqueueFile, `[jobs.plain]`, `[jobs.all]
kind = "shell"
command = ["true"]
unique = { by_args = true, by_queue = true, by_state = ["available", "pending", "running", "scheduled", "cancelled"] }
[jobs.plain]`, 1))
	const args = `{"b": {"y": 1, "x": [{"q": 1.50, "a": 1e3}]}, "a": "caf\u00e9 \/ <", "n": [-0, -0.0, 1E-3, 12.5e1, 1.5e1, 100e-1, -2e-2, 0e5, 0.000e2, 1e21, 9007199254740993, 123.456e-5]}`
	for _, test := range []struct {
		name string
		job  jobstore.NewJob
		own  bool
		opts string
	}{
		{"a key", jobstore.NewJob{Kind: "plain", Unique: "Montag ☃"}, true, `{"unique": "Montag ☃"}`},
		{"args", jobstore.NewJob{Kind: "plain", UniqueBy: jobstore.UniqueBy{Args: true}}, true, `{"unique_args": true}`},
		{"the kind", jobstore.NewJob{Kind: "all"}, false, `{}`},
		{"the kind's period", jobstore.NewJob{Kind: "report"}, false, `{}`},
		{"none", jobstore.NewJob{Kind: "all"}, true, `{"no_unique": true}`},
	} {
		test.job.Args = []byte(args)
		want := keyOf(t, pool, enqueue(t, pool, inserter, test.job, test.own, "test").ID)
		if got := keyOf(t, pool, mustSQLEnqueue(t, pool, test.job.Kind, args, test.opts)); got != want {
			t.Errorf("%s: got %s, want %s", test.name, got, want)
		}
	}
}

// A duplicate is not inserted, whoever enqueued the first job.
func TestSQLEnqueueReturnsDuplicate(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, enqueueFile)
	first := enqueue(t, pool, inserter, jobstore.NewJob{Kind: "report", Args: []byte(`{"a": 1}`)}, false, "test")
	if id := mustSQLEnqueue(t, pool, "report", `{"a": 1}`, `{}`); id != first.ID {
		t.Errorf("got job %d, want %d", id, first.ID)
	}
	got := rows(t, pool, `SELECT concat_ws(' ', id = $1, existing) FROM forge_enqueue_many('[{"kind": "report", "args": {"a": 1}}, {"kind": "report", "args": {"a": 2}}, {"kind": "report", "args": {"a": 2}}]')`, first.ID)
	if want := []string{"t t", "f f", "f t"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// keysSQL returns the key that an insert has taken, and forgets it.
const keysSQL = `
WITH jobs AS (DELETE FROM river_job RETURNING unique_key, unique_states), throttles AS (DELETE FROM forge_throttles RETURNING key)
SELECT concat_ws(' ', encode(coalesce(unique_key, (SELECT key FROM throttles)), 'hex'), unique_states) FROM jobs`

// Go and SQL make the same keys.
func TestDuplicatesHaveEqualKeys(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, strings.ReplaceAll(duplicatesFile, `["doc"]`, `["dö\"c", "a<b", "doc", "none"]`)+`
[jobs.kept]
kind = "go"
unique = { by_args = ["doc", "a<b"], by_queue = true, by_period = "15m", by_state = ["available", "pending", "running", "scheduled"] }`)
	const args = `{"doc": {"z": 1.50, "a": [1e3]}, "dö\"c": "<é>", "a<b": null, "v": 1}`
	both := enqueuers(inserter)
	for _, test := range []struct{ kind, opts string }{
		{"replaced", `{}`},
		{"debounced", `{}`},
		{"throttled", `{}`},
		{"single", `{}`},
		{"plain", `{"unique": "k", "replace": true}`},
		{"plain", `{"unique_args": ["doc"], "throttle": "1h"}`},
		{"kept", `{"at": "2099-01-01T00:00:00Z"}`},
	} {
		both["Go"](t, pool, test.kind, args, test.opts)
		want := rows(t, pool, keysSQL)
		both["SQL"](t, pool, test.kind, args, test.opts)
		if got := rows(t, pool, keysSQL); !slices.Equal(got, want) || len(got) != 1 || len(got[0]) < 64 {
			t.Errorf("%s %s: got %q, want %q", test.kind, test.opts, got, want)
		}
	}
}

func statesOf(names []string) (states []rivertype.JobState) {
	for _, name := range names {
		states = append(states, rivertype.JobState(name))
	}
	return states
}
