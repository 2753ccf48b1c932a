package jobs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/jobs"
)

const enqueueFile = `
[database]
url = "postgres://localhost/unused"
[queues.slow]
priority = 3
[jobs.report]
kind = "shell"
command = ["true"]
queue = "slow"
capability = "gpu"
tags = { zone = "a" }
retry = { max_attempts = 7 }
unique = { by_args = true, by_period = "366d" }
[jobs.plain]
kind = "shell"
command = ["true"]
[jobs.greet]
kind = "go"
queue = "slow"
schema = { required = ["name"], properties = { name = { type = "string" }, at = { type = "array", items = { type = "integer" } } } }
`

// apply puts the file in force and returns a pool and an inserter.
func apply(t *testing.T, text string) (*pgxpool.Pool, *jobs.Inserter) {
	t.Helper()
	pool := pgtest.Pool(t)
	if text != "" {
		cfg, err := forge.ParseConfig("forge.toml", text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := forge.Apply(t.Context(), pool, cfg, true); err != nil {
			t.Fatal(err)
		}
	}
	inserter, err := jobs.NewInserter(pool, "")
	if err != nil {
		t.Fatal(err)
	}
	return pool, inserter
}

func enqueue(t *testing.T, pool *pgxpool.Pool, inserter *jobs.Inserter, job jobstore.NewJob, ownUnique bool, by string) jobstore.Enqueued {
	t.Helper()
	added, err := jobs.NewEnqueuer(pool, inserter).Enqueue(t.Context(), job, ownUnique, by)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

// rows returns the values of a query's first column.
func rows(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	found, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// A job gets the settings of its kind in force where the request sets none. A kind
// that is not configured gets River's defaults.
func TestAddAppliesConfiguredSettings(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, enqueueFile)
	for name, test := range map[string]struct {
		job  jobstore.NewJob
		want string
	}{
		"its own":     {jobstore.NewJob{Kind: "report"}, `slow 3 7 {"forge:tags": {"zone": "a"}, "forge:capability": "gpu"}`},
		"the request": {jobstore.NewJob{Kind: "report", Queue: "default", Priority: 2, Args: []byte(`{"a":1}`)}, `default 2 7 {"forge:tags": {"zone": "a"}, "forge:capability": "gpu"}`},
		"plain":       {jobstore.NewJob{Kind: "plain"}, `default 1 3 {}`},
		"a weight":    {jobstore.NewJob{Kind: "plain", Weight: 3}, `default 1 3 {"forge:weight": 3}`},
		"unknown":     {jobstore.NewJob{Kind: "wave"}, `default 1 25 {}`},
		"a program's": {jobstore.NewJob{Kind: "greet", Args: []byte(`{"name": "Ada"}`)}, `slow 3 25 {}`},
	} {
		added := enqueue(t, pool, inserter, test.job, false, "test")
		got := rows(t, pool, `SELECT concat_ws(' ', queue, priority, max_attempts, metadata - 'unique_key') FROM river_job WHERE id = $1`, added.ID)
		if !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// A weight that a rate never has at once is rejected.
func TestAddRejectsWeightAboveRate(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, enqueueFile+"[queues.rated]\nrate_limit = { limit = 5, per = \"1m\", burst = 4 }\n")
	job := jobstore.NewJob{Kind: "plain", Queue: "rated", Weight: 4}
	enqueue(t, pool, inserter, job, false, "test")
	job.Weight = 5
	_, err := jobs.NewEnqueuer(pool, inserter).Enqueue(t.Context(), job, false, "test")
	if want := (jobstore.WeightError{Of: "queue rated", Weight: 5, Most: 4}); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// The weight of a kind is compared with the rate of another queue than the kind's own.
func TestAddRejectsWeightOfKindAboveRate(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, enqueueFile+"[queues.rated]\nrate_limit = { limit = 4, per = \"1m\" }\n"+
		"[jobs.heavy]\nkind = \"shell\"\ncommand = [\"true\"]\nweight = 5\nrate_limit = { limit = 9, per = \"1m\" }\n")
	enqueue(t, pool, inserter, jobstore.NewJob{Kind: "heavy"}, false, "test")
	enqueue(t, pool, inserter, jobstore.NewJob{Kind: "heavy", Queue: "rated", Weight: 4}, false, "test")
	_, err := jobs.NewEnqueuer(pool, inserter).Enqueue(t.Context(), jobstore.NewJob{Kind: "heavy", Queue: "rated"}, false, "test")
	if want := (jobstore.WeightError{Of: "queue rated", Weight: 5, Most: 4}); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestAddWithoutConfiguration(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, "")
	if added := enqueue(t, pool, inserter, jobstore.NewJob{Kind: "greet"}, false, "test"); added.State != "available" {
		t.Errorf("got %+v", added)
	}
}

// The kind's uniqueness applies unless the request sets its own.
func TestAddReturnsDuplicate(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, enqueueFile)
	due := time.Date(2099, 6, 1, 0, 0, 0, 0, time.UTC)
	job := jobstore.NewJob{Kind: "report", ScheduledAt: due}
	first := enqueue(t, pool, inserter, job, false, "test")
	if again := enqueue(t, pool, inserter, job, false, "test"); !again.Existing || again.ID != first.ID {
		t.Errorf("the same again is %+v, want job %d", again, first.ID)
	}
	if own := enqueue(t, pool, inserter, job, true, "test"); own.Existing {
		t.Errorf("unique against the request's own word: %+v", own)
	}
}

// The event log records who added which job, and nothing for duplicates and
// failures.
func TestAddWritesOneEvent(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, enqueueFile)
	const eventsSQL = `SELECT concat_ws(' ', data ->> 'by', data ->> 'kind', data ->> 'queue', data ->> 'id') FROM forge_events WHERE type = 'job_enqueued' ORDER BY id`
	job := jobstore.NewJob{Kind: "report", Unique: "monday"}
	first := enqueue(t, pool, inserter, job, true, "ada")
	if again := enqueue(t, pool, inserter, job, true, "bo"); !again.Existing {
		t.Fatalf("added twice: %+v", again)
	}
	if diff := cmp.Diff([]string{"ada report slow 1"}, rows(t, pool, eventsSQL)); diff != "" || first.ID != 1 {
		t.Errorf("job %d, the event log (-want +got):\n%s", first.ID, diff)
	}
	_, err := jobs.NewEnqueuer(pool, failing{inserter}).Enqueue(t.Context(), jobstore.NewJob{Kind: "plain"}, false, "cy")
	if err == nil || err.Error() != "enqueue: after the insert" {
		t.Errorf("error %v", err)
	}
	if _, err := pool.Exec(t.Context(), `ALTER TABLE forge_events RENAME TO forge_events_gone`); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.NewEnqueuer(pool, inserter).Enqueue(t.Context(), jobstore.NewJob{Kind: "plain"}, false, "di"); err == nil {
		t.Error("a job was added without a word in the event log")
	}
	if got := rows(t, pool, `SELECT kind FROM river_job`); !slices.Equal(got, []string{"report"}) {
		t.Errorf("jobs %v, want the first alone", got)
	}
}

// failing inserts and then fails, like a lost connection.
type failing struct{ *jobs.Inserter }

func (f failing) InsertOnce(ctx context.Context, tx pgx.Tx, job jobstore.NewJob) (jobstore.Enqueued, error) {
	if _, err := f.Inserter.InsertOnce(ctx, tx, job); err != nil {
		return jobstore.Enqueued{}, err
	}
	return jobstore.Enqueued{}, errors.New("after the insert")
}

// Catalogue entry 70: arguments that violate the schema of the kind are rejected, with
// the place of each violation.
func TestAddValidatesArguments(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, enqueueFile)
	for args, want := range map[string]string{
		`{"name": "Ada", "at": [1]}`:  "",
		"":                            "args.name: missing",
		`{"name": 7, "at": [1, "x"]}`: "args.at[1]: wrong type (got string); want integer; args.name: wrong type (got number); want string",
	} {
		_, err := jobs.NewEnqueuer(pool, inserter).Enqueue(t.Context(), jobstore.NewJob{Kind: "greet", Args: []byte(args)}, false, "test")
		if wrong, _ := errors.AsType[config.SchemaError](err); (want == "") != (err == nil) || wrong.Error() != want {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
	if got := rows(t, pool, `SELECT args::text FROM river_job`); !slices.Equal(got, []string{`{"at": [1], "name": "Ada"}`}) {
		t.Errorf("jobs with %v", got)
	}
	fields, err := jobs.NewEnqueuer(pool, nil).Fields(t.Context(), "greet")
	if diff := cmp.Diff([]argschema.Field{{Name: "name", Types: "string", Required: true}, {Name: "at", Types: "array"}}, fields); diff != "" || err != nil {
		t.Errorf("fields: %v (-want +got):\n%s", err, diff)
	}
	if fields, err := jobs.NewEnqueuer(pool, nil).Fields(t.Context(), "plain"); err != nil || fields != nil {
		t.Errorf("fields of a kind without a schema: %v, %v", fields, err)
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO forge_nodes (node_id, incarnation, state, kinds) VALUES
		('a', '0000000000000001', 'active', '{mail,backup}'), ('b', '0000000000000002', 'draining', '{backup}'),
		('c', '0000000000000003', 'dead', '{report}'), ('d', '0000000000000004', 'left', '{backup,old}')`)
	if err != nil {
		t.Fatal(err)
	}
	live, known, err := jobs.NewEnqueuer(pool, nil).Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"backup", "mail"}, {"backup", "mail", "old", "report"}}, [][]string{live, known}); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}
