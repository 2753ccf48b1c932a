package riveradapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

type mailArgs struct {
	To string `json:"to"`
}

func (mailArgs) Kind() string { return "mail" }

// pluginArgs are arguments whose plugin fails after the insert.
type pluginArgs struct{}

var errAfterInsert = errors.New("failed after the insert")

func (pluginArgs) Kind() string { return "plugin" }

func (pluginArgs) Plugins() []rivertype.Plugin { return []rivertype.Plugin{&failsAfterInsert{}} }

type failsAfterInsert struct{ river.PluginDefaults }

func (*failsAfterInsert) InsertMany(ctx context.Context, _ []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	if _, err := insert(ctx); err != nil {
		return nil, err
	}
	return nil, errAfterInsert
}

// statements counts the statements of a pool. Each is a round trip.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func counted(t *testing.T) (*pgxpool.Pool, *statements) {
	t.Helper()
	count := &statements{}
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: pgtest.URL(t), Schema: "public", Tracer: count})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, count
}

func insertClient(t *testing.T, driver riverdriver.Driver[pgx.Tx]) *river.Client[pgx.Tx] {
	t.Helper()
	client, err := river.NewClient(driver, &river.Config{Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestSingleInsertIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	pool, count := counted(t)
	client := insertClient(t, NewInsertDriver(pool, "public", 0))
	trips := func(what string, want int64, do func() error) {
		t.Helper()
		before := count.n.Load()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := count.n.Load() - before; got != want {
			t.Errorf("%s takes %d round trips; want %d", what, got, want)
		}
	}
	insert := func(opts *river.InsertOpts) func() error {
		return func() error { _, err := client.Insert(t.Context(), mailArgs{"ada"}, opts); return err }
	}
	if err := insert(nil)(); err != nil { // connects
		t.Fatal(err)
	}
	unique := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
	trips("an insert with its notification", 1, insert(nil))
	trips("a unique insert", 1, insert(unique))
	trips("a duplicate", 1, insert(unique))
	trips("a scheduled insert", 1, insert(&river.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)}))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	trips("an insert in a transaction", 1, func() error {
		_, err := client.InsertTx(t.Context(), tx, mailArgs{"bob"}, nil)
		return err
	})
	trips("a commit", 1, func() error { return tx.Commit(t.Context()) })
	var jobs int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job`).Scan(&jobs); err != nil || jobs != 5 {
		t.Errorf("%d jobs, %v; want 5", jobs, err)
	}
}

// Jobs whose time JSON cannot represent are rejected, however they are inserted, and others of the
// same call with them.
func TestInsertRejectsYearsBeyondJSON(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := insertClient(t, NewInsertDriver(pool, "public", time.Hour))
	far := &river.InsertOpts{ScheduledAt: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}
	ruled := &river.InsertOpts{ScheduledAt: far.ScheduledAt, UniqueOpts: river.UniqueOpts{ByArgs: true}, Metadata: []byte(`{"forge:unique": {"replace": true}}`)}
	const want = "a job of kind mail: ScheduledAt out of range (got the year 10000); want a time in the years 1 to 9999 of UTC"
	for name, insert := range map[string]func() error{
		"one":         func() error { _, err := client.Insert(t.Context(), mailArgs{"ada"}, far); return err },
		"with a rule": func() error { _, err := client.Insert(t.Context(), mailArgs{"ada"}, ruled); return err },
		"many": func() error {
			_, err := client.InsertMany(t.Context(), []river.InsertManyParams{{Args: mailArgs{"ada"}}, {Args: mailArgs{"bob"}, InsertOpts: far}})
			return err
		},
		"many, fast": func() error {
			_, err := client.InsertManyFast(t.Context(), []river.InsertManyParams{{Args: mailArgs{"ada"}}, {Args: mailArgs{"bob"}, InsertOpts: far}})
			return err
		},
	} {
		if err := insert(); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	var jobs int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job`).Scan(&jobs); err != nil || jobs != 0 {
		t.Errorf("%d jobs, %v; want none", jobs, err)
	}
}

// A row and the result for it are the same as those of River's own driver.
func TestInsertMatchesRiver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ours, theirs := insertClient(t, NewInsertDriver(pool, "public", time.Hour)), insertClient(t, riverpgxv5.New(pool))
	due := time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, opts := range map[string]*river.InsertOpts{
		"defaults": nil,
		"everything": {
			MaxAttempts: 7, Metadata: []byte(`{"b": [1, 2],"a":"é"}`), Priority: 3, Queue: "slow", ScheduledAt: due, Tags: []string{"first-tag", "second_tag"},
		},
		"pending":        {Pending: true},
		"many attempts":  {MaxAttempts: 100_000},
		"unique by args": {UniqueOpts: river.UniqueOpts{ByArgs: true}},
		"unique by more": {Queue: "q", UniqueOpts: river.UniqueOpts{
			ByQueue: true, ByPeriod: time.Hour,
			ByState: []rivertype.JobState{"available", "pending", "running", "scheduled", "completed"},
		}},
	} {
		var results [2][2]*rivertype.JobInsertResult // the second of each client may be a duplicate
		for c, client := range []*river.Client[pgx.Tx]{ours, theirs} {
			for again := range 2 {
				result, err := client.Insert(t.Context(), mailArgs{"<é>"}, opts)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				row, err := theirs.JobGet(t.Context(), result.Job.ID)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(row, result.Job); diff != "" {
					t.Errorf("%s: the result is not the row (-row +result):\n%s", name, diff)
				}
				results[c][again] = result
			}
			if _, err := pool.Exec(t.Context(), `DELETE FROM river_job`); err != nil {
				t.Fatal(err)
			}
		}
		ignored := cmpopts.IgnoreFields(rivertype.JobRow{}, "ID", "CreatedAt", "ScheduledAt")
		if diff := cmp.Diff(results[1], results[0], ignored); diff != "" {
			t.Errorf("%s: not River's results (-River +forge):\n%s", name, diff)
		}
		mine, rivers := results[0][0].Job, results[1][0].Job
		if gap := rivers.CreatedAt.Sub(mine.CreatedAt); gap < 0 || gap > time.Minute {
			t.Errorf("%s: created with a gap of %v", name, gap)
		}
		if gap := rivers.ScheduledAt.Sub(mine.ScheduledAt); gap < 0 || gap > time.Minute {
			t.Errorf("%s: scheduled with a gap of %v", name, gap)
		}
	}
}

// The notification arrives with the commit, and at most once per interval.
func TestInsertNotifiesOnCommit(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	client := insertClient(t, NewInsertDriver(pool, "public", 0))
	listener, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close(context.WithoutCancel(t.Context())) }()
	channel := wire.Channel("public", wire.RiverInsertChannel)
	if _, err := listener.Exec(t.Context(), `LISTEN "`+channel+`"`); err != nil {
		t.Fatal(err)
	}
	seldom := insertClient(t, NewInsertDriver(pool, "public", time.Hour))
	opts := func(queue string) *river.InsertOpts { return &river.InsertOpts{Queue: queue} }
	inTx := func(queue string, end func(pgx.Tx) error) error {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			return err
		}
		_, err = client.InsertTx(t.Context(), tx, mailArgs{"ada"}, opts(queue))
		return errors.Join(err, end(tx))
	}
	_, alone := client.Insert(t.Context(), mailArgs{"ada"}, opts("alone"))
	_, later := client.Insert(t.Context(), mailArgs{"ada"}, &river.InsertOpts{Queue: "later", ScheduledAt: time.Now().Add(time.Hour)})
	_, first := seldom.Insert(t.Context(), mailArgs{"ada"}, opts("seldom"))
	_, second := seldom.Insert(t.Context(), mailArgs{"ada"}, opts("seldom"))
	_, failed := client.Insert(t.Context(), mailArgs{"\x00"}, opts("invalid"))
	if failed == nil {
		t.Error("a job with a null character was inserted")
	}
	err = errors.Join(alone, later, first, second,
		inTx("rolled_back", func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }),
		inTx("committed", func(tx pgx.Tx) error { return tx.Commit(t.Context()) }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `SELECT pg_notify($1, 'the end')`, channel); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) == 0 || got[len(got)-1] != "the end" {
		notification, err := pgtest.WaitForNotification(t.Context(), listener)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, notification.Payload)
	}
	if want := []string{`{"queue": "alone"}`, `{"queue": "seldom"}`, `{"queue": "committed"}`, "the end"}; !slices.Equal(got, want) {
		t.Errorf("received %q; want %q", got, want)
	}
}

// A plugin of the arguments that fails after the insert undoes it.
func TestPluginFailureUndoesInsert(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := insertClient(t, NewInsertDriver(pool, "public", 0))
	if _, err := client.Insert(t.Context(), pluginArgs{}, nil); !errors.Is(err, errAfterInsert) {
		t.Errorf("got %v; want %v", err, errAfterInsert)
	}
	// The adapter sees arguments that have no plugins, but River knows those of the kind.
	if _, err := client.Insert(t.Context(), runTimeArgs{pluginArgs{}.Kind()}, nil); !errors.Is(err, errAfterInsert) {
		t.Errorf("a kind known at run time: got %v; want %v", err, errAfterInsert)
	}
	var jobs int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job`).Scan(&jobs); err != nil || jobs != 0 {
		t.Errorf("%d jobs, %v; want none", jobs, err)
	}
}

type runTimeArgs struct{ kind string }

func (a runTimeArgs) Kind() string { return a.kind }
func (runTimeArgs) KindAtRunTime() {}

// A Go program's transaction need not have the schema in its search_path.
func TestInsertNeedsNoSearchPath(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := insertClient(t, NewInsertDriver(pool, "public", 0))
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL search_path = pg_catalog`); err != nil {
			return err
		}
		for _, opts := range []*river.InsertOpts{nil, {UniqueOpts: river.UniqueOpts{ByArgs: true}}, {UniqueOpts: river.UniqueOpts{ByArgs: true}}} {
			if _, err := client.InsertTx(t.Context(), tx, mailArgs{"ada"}, opts); err != nil {
				return fmt.Errorf("%+v: %w", opts, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// pgx encodes parameters differently in each of its modes.
func TestInsertWorksInEveryModeOfPgx(t *testing.T) {
	t.Parallel()
	config := pgtest.Pool(t).Config()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		config := config.Copy()
		config.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		client := insertClient(t, NewInsertDriver(pool, "public", 0))
		opts := &river.InsertOpts{
			Metadata: []byte(`{"a":1}`), Tags: []string{"a-tag"}, ScheduledAt: time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC), UniqueOpts: river.UniqueOpts{ByArgs: true},
		}
		result, err := client.Insert(t.Context(), mailArgs{mode.String()}, opts)
		if err != nil || !result.Job.ScheduledAt.Equal(opts.ScheduledAt) || !slices.Equal(result.Job.Tags, opts.Tags) {
			t.Errorf("%v: %+v, %v", mode, result, err)
		}
		pool.Close()
	}
}

// An insert is not acknowledged if the server stopped waiting for the synchronous replica.
func TestUnconfirmedInsertFails(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	direct := pgtest.Connect(t, server.URL())
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: server.URL(), Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	client := insertClient(t, NewInsertDriver(pool, "public", 0))
	server.MissReplica()
	unique := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
	for _, name := range []string{"an insert", "a duplicate"} {
		ended := make(chan error, 1)
		go func() {
			_, err := client.Insert(t.Context(), mailArgs{"ada"}, unique)
			ended <- err
		}()
		await(t, direct, pgtest.ReplicaWaits)
		if _, err := direct.Exec(t.Context(), `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, postgres.ErrUnconfirmed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	await(t, direct, `SELECT count(*) = 1 FROM river_job`)
}

func await(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var is bool
		if err := pool.QueryRow(t.Context(), sql).Scan(&is); err != nil {
			t.Fatal(err)
		}
		if is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not so in time: %s", sql)
		}
	}
}
