package forge

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

type indexArgs struct {
	Doc     int `json:"doc" river:"unique"`
	Version int `json:"version"`
}

func (indexArgs) Kind() string { return "index" }

// A node's client replaces, debounces and throttles jobs, in the program's transactions too,
// under the keys of SQL.
func TestInsertOpts(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	node := runNode(t, url, "")
	<-node.Ready()
	client, pool := node.Client(), pgtest.Connect(t, url)
	later := river.InsertOpts{ScheduledAt: time.Now().Add(time.Hour), UniqueOpts: river.UniqueOpts{ByArgs: true}}
	insert := func(opts InsertOpts, doc, version int, want Verdict) int64 {
		t.Helper()
		converted, err := opts.River()
		if err != nil {
			t.Fatal(err)
		}
		result, err := client.Insert(t.Context(), indexArgs{doc, version}, converted)
		if err != nil {
			t.Fatal(err)
		}
		if got := VerdictOf(result); got != want {
			t.Errorf("%+v: %s, want %s", opts, got, want)
		}
		return result.Job.ID
	}
	replace, debounce := InsertOpts{InsertOpts: later, Replace: true}, InsertOpts{Key: "k", Debounce: time.Hour}
	first := insert(replace, 1, 1, Added)
	insert(replace, 1, 2, Replaced)
	insert(replace, 2, 3, Added)
	insert(debounce, 3, 4, Added)
	insert(debounce, 4, 5, Debounced)
	insert(InsertOpts{Throttle: time.Hour, InsertOpts: river.InsertOpts{ScheduledAt: later.ScheduledAt}}, 5, 6, Added)
	insert(InsertOpts{Throttle: time.Hour}, 6, 7, Throttled)
	insert(InsertOpts{InsertOpts: later}, 2, 8, Duplicate)
	keyed := InsertOpts{Key: "own", Weight: 7, InsertOpts: river.InsertOpts{ScheduledAt: later.ScheduledAt, Metadata: []byte(`{"a": 1}`)}}
	owner := insert(keyed, 8, 12, Added)
	insert(keyed, 9, 13, Duplicate)
	heavy := insert(InsertOpts{Weight: 5, InsertOpts: river.InsertOpts{ScheduledAt: later.ScheduledAt}}, 10, 14, Added)
	for id, want := range map[int64]string{owner: `{"a": 1, "forge:weight": 7}`, heavy: `{"forge:weight": 5}`} {
		var got string
		if err := pool.QueryRow(t.Context(), `SELECT metadata::text FROM river_job WHERE id = $1`, id).Scan(&got); err != nil || got != want {
			t.Errorf("metadata %s, %v; want %s", got, err, want)
		}
	}
	var equal int64
	err := pool.QueryRow(t.Context(), `SELECT forge_enqueue('index', '{"doc": 9}', '{"unique": "own"}')`).Scan(&equal)
	if err != nil || equal != owner {
		t.Errorf("SQL: job %d, %v; want job %d", equal, err, owner)
	}

	many, _ := replace.River()
	batch := []river.InsertManyParams{{Args: indexArgs{1, 9}, InsertOpts: many}, {Args: indexArgs{7, 10}, InsertOpts: &later}}
	failed := errors.New("failed")
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		results, err := client.InsertManyTx(t.Context(), tx, batch)
		if err != nil || VerdictOf(results[0]) != Replaced || results[0].Job.ID != first || VerdictOf(results[1]) != Added {
			t.Errorf("a batch: %+v, %v", results, err)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if _, err := client.InsertManyFast(t.Context(), batch); err == nil || !strings.Contains(err.Error(), "use InsertMany") {
		t.Errorf("COPY: %v", err)
	}
	var sql int64
	err = pool.QueryRow(t.Context(), `SELECT forge_enqueue('index', '{"doc": 1, "version": 11}', '{"unique_args": ["doc"], "replace": true}')`).Scan(&sql)
	if err != nil || sql != first {
		t.Errorf("SQL: job %d, %v; want job %d", sql, err, first)
	}
	var left string
	err = pool.QueryRow(t.Context(), `SELECT string_agg((args ->> 'doc') || ':' || (args ->> 'version'), ' ' ORDER BY id) FROM river_job`).Scan(&left)
	if want := "1:11 2:3 4:5 5:6 8:12 10:14"; err != nil || left != want {
		t.Errorf("jobs %s, %v; want %s", left, err, want)
	}
}

func TestInsertOptsAreChecked(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string]InsertOpts{
		"only one of replace, debounce and throttle":    {Replace: true, Throttle: time.Hour},
		"debounce: no duration, or out of range":        {Debounce: time.Millisecond},
		"throttle: no duration":                         {Throttle: -time.Second},
		"max_wait: less than debounce":                  {Debounce: time.Minute, MaxWait: time.Second},
		"max_wait: without debounce":                    {MaxWait: time.Second},
		"at: a time for a debounced job":                {Debounce: time.Minute, InsertOpts: river.InsertOpts{ScheduledAt: time.Now()}},
		"ScheduledAt out of range (got the year 10000)": {InsertOpts: river.InsertOpts{ScheduledAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"Weight out of range (got -1)":                  {Weight: -1},
		"want 1 to 1000000":                             {Weight: 1_000_001},
		"ByPeriod or ByState":                           {Replace: true, InsertOpts: river.InsertOpts{UniqueOpts: river.UniqueOpts{ByPeriod: time.Hour}}},
		"read the metadata":                             {Replace: true, InsertOpts: river.InsertOpts{Metadata: []byte("[]")}},
	} {
		if got, err := opts.River(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v; want %s", opts, got, err, want)
		}
	}
	plain := InsertOpts{InsertOpts: river.InsertOpts{Queue: "mail"}}
	if got, err := plain.River(); err != nil || fmt.Sprint(*got) != fmt.Sprint(plain.InsertOpts) {
		t.Errorf("got %+v, %v", got, err)
	}
}
