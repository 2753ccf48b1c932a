package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/jobs"
)

func TestJobsGetReservedIDs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	inserter, err := jobs.NewInserter(pool, "")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `SELECT nextval('river_job_id_seq') FROM generate_series(1, 3)`)
	if err != nil {
		t.Fatal(err)
	}
	reserved, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		got, err = inserter.InsertMany(t.Context(), tx, []jobstore.NewJob{
			{Kind: "a", ID: reserved[2]}, {Kind: "b"}, {Kind: "c", ID: reserved[0]},
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{reserved[2], reserved[2] + 1, reserved[0]}; !slices.Equal(got, want) {
		t.Errorf("inserted as %v, want %v", got, want)
	}
	if id, err := inserter.Insert(t.Context(), jobstore.NewJob{Kind: "d", ID: reserved[1]}); err != nil || id != reserved[1] {
		t.Errorf("inserted as %d, want %d: %v", id, reserved[1], err)
	}
}

// All inserts of the program are counted, with any method of the client.
func TestClientInsertsAreCounted(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	client, unique := n.Client(), &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
	many := []river.InsertManyParams{{Args: greetArgs{Name: "b"}}, {Args: greetArgs{Name: "c"}}}
	_, err := client.Insert(t.Context(), greetArgs{Name: "a"}, unique)
	_, again := client.Insert(t.Context(), greetArgs{Name: "a"}, unique) // a duplicate is not inserted
	_, fast := client.InsertManyFast(t.Context(), many)
	err = errors.Join(err, again, fast, pgx.BeginFunc(t.Context(), n.pool, func(tx pgx.Tx) error {
		_, err := client.InsertManyTx(t.Context(), tx, many)
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(n.metrics.JobEnqueued.WithLabelValues(greetArgs{}.Kind())); got != 5 {
		t.Errorf("%v of 5 inserted jobs are counted", got)
	}
}

// The inserts of a process without metrics are recorded, unless they are rolled back.
func TestInsertsWithoutMetricsAreRecorded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	inserter, err := jobs.NewInserter(pool, "")
	if err != nil {
		t.Fatal(err)
	}
	insertOnce(t, pool, inserter, jobstore.NewJob{Kind: "report", Unique: "january"})
	insertOnce(t, pool, inserter, jobstore.NewJob{Kind: "report", Unique: "january"})
	many := []jobstore.NewJob{{Kind: "tidy"}, {Kind: "report"}, {Kind: "tidy"}}
	insertMany := func(failure error) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := inserter.InsertMany(t.Context(), tx, many); err != nil {
				return err
			}
			return failure
		})
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	insertMany(nil)
	insertMany(pgx.ErrTxCommitRollback)
	want := [][]jobstore.KindCount{{{Kind: "report", Jobs: 2}, {Kind: "tidy", Jobs: 2}}, {}}
	for _, want := range want {
		got, err := jobstore.New(pool).TakeEnqueued(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, func(a, b jobstore.KindCount) int { return strings.Compare(a.Kind, b.Kind) })
		if !slices.Equal(got, want) {
			t.Errorf("noted %v, want %v", got, want)
		}
	}
}

// Jobs may be inserted with any kind; the metrics name a bounded number of kinds.
func TestInsertsOfManyKindsAreCountedTogether(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	for i := range metrics.MaxKinds {
		n.metrics.KindLabel(fmt.Sprintf("kind-%d", i))
	}
	if _, err := n.Client().Insert(t.Context(), greetArgs{Name: "a"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(n.metrics.JobEnqueued.WithLabelValues(metrics.OtherKinds)); got != 1 {
		t.Errorf("%v jobs of other kinds are counted, want 1", got)
	}
}

// After the first job of a queue, only the caller sends notifications.
func TestSilentInserterSendsNoNotifications(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	collected := metrics.New("test")
	runner, err := jobs.New(jobs.Options{
		Pool: pool, NodeID: nodeID, Slots: 1, Logger: slog.New(slog.DiscardHandler), Metrics: collected,
		Jobs: map[string]config.Job{"report": {Kind: "shell", Command: []string{"true"}, Queue: "reports"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	silent, err := runner.SilentInserter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Insert(t.Context(), jobstore.NewJob{Kind: "report"}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	channel := wire.Channel("public", wire.RiverInsertChannel)
	if _, err := conn.Exec(t.Context(), `LISTEN "`+channel+`"`); err != nil {
		t.Fatal(err)
	}
	id, err := silent.Insert(t.Context(), jobstore.NewJob{Kind: "report"})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `SELECT pg_notify($1, 'the end')`, channel)
	notification, err := pgtest.WaitForNotification(t.Context(), conn)
	if err != nil || notification.Payload != "the end" {
		t.Errorf("received %+v: %v", notification, err)
	}
	var queue string
	if err := pool.QueryRow(t.Context(), `SELECT queue FROM river_job WHERE id = $1`, id).Scan(&queue); err != nil || queue != "reports" {
		t.Errorf("the job is in queue %q, want that of its kind: %v", queue, err)
	}
	if counted := testutil.ToFloat64(collected.JobEnqueued.WithLabelValues("report")); counted != 2 {
		t.Errorf("%v of 2 jobs are counted", counted)
	}
}

func insertOnce(t *testing.T, pool *pgxpool.Pool, inserter *jobs.Inserter, job jobstore.NewJob) (added jobstore.Enqueued) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		added, err = inserter.InsertOnce(t.Context(), tx, job)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return added
}

// A unique key admits one job of its kind until that job is discarded.
func TestUniqueKeyAdmitsOneJob(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	inserter, err := jobs.NewInserter(pool, "")
	if err != nil {
		t.Fatal(err)
	}
	insert := func(kind, key string) (int64, bool) {
		t.Helper()
		added := insertOnce(t, pool, inserter, jobstore.NewJob{Kind: kind, Unique: key})
		return added.ID, added.Existing
	}
	first, existing := insert("report", "monday")
	if existing {
		t.Error("the first job is a duplicate")
	}
	if again, existing := insert("report", "monday"); !existing || again != first {
		t.Errorf("the second job is %d, existing %v; want job %d", again, existing, first)
	}
	for _, other := range [][2]string{{"report", "tuesday"}, {"mail", "monday"}, {"report", ""}, {"report", ""}} {
		if id, existing := insert(other[0], other[1]); existing || id == first {
			t.Errorf("%v is job %d, existing %v", other, id, existing)
		}
	}
	for state, free := range map[string]bool{"completed": false, "discarded": true} {
		exec(t, pool, `UPDATE river_job SET state = $2::river_job_state, finalized_at = now() WHERE id = $1`, first, state)
		if id, existing := insert("report", "monday"); existing == free {
			t.Errorf("after the first was %s: job %d, existing %v", state, id, existing)
		}
		exec(t, pool, `DELETE FROM river_job WHERE kind = 'report' AND id > $1`, first)
	}
}

// The uniqueness rules of a kind admit one job for each combination.
func TestUniqueByAdmitsOneJobEach(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	inserter, err := jobs.NewInserter(pool, "")
	if err != nil {
		t.Fatal(err)
	}
	due := time.Date(2099, 1, 1, 12, 0, 0, 0, time.UTC)
	insert := func(args, queue string, at time.Time, by jobstore.UniqueBy) jobstore.Enqueued {
		t.Helper()
		return insertOnce(t, pool, inserter, jobstore.NewJob{
			Kind: "report", Args: json.RawMessage(args), Queue: queue, ScheduledAt: at, UniqueBy: by,
		})
	}
	for name, test := range map[string]struct {
		by                        jobstore.UniqueBy
		sameArgs, otherArgs       bool // whether such a job is a duplicate
		otherQueue, otherTime     bool
		afterCompleted, cancelled bool
	}{
		"args":   {jobstore.UniqueBy{Args: true}, true, false, true, true, true, false},
		"queue":  {jobstore.UniqueBy{Queue: true}, true, true, false, true, true, false},
		"period": {jobstore.UniqueBy{Period: time.Hour}, true, true, true, false, true, false},
		"state": {
			jobstore.UniqueBy{States: []string{"available", "pending", "running", "scheduled", "cancelled"}}, true, true, true, true, false, true,
		},
		"nothing": {jobstore.UniqueBy{}, false, false, false, false, false, false},
	} {
		exec(t, pool, `DELETE FROM river_job`)
		first := insert(`{"a": 1, "b": {"c": 2}}`, "", due, test.by)
		if first.Existing || first.State != "scheduled" || first.Queue != "default" || first.Kind != "report" {
			t.Errorf("%s: the first is %+v", name, first)
		}
		want := func(what string, duplicate bool, got jobstore.Enqueued) {
			t.Helper()
			if got.Existing != duplicate || duplicate && got.ID != first.ID {
				t.Errorf("unique by %s, %s: %+v, want a duplicate of %d: %v", name, what, got, first.ID, duplicate)
			}
			exec(t, pool, `DELETE FROM river_job WHERE id <> $1`, first.ID)
		}
		want("the same", test.sameArgs, insert(`{"b":{"c":2},"a":1}`, "", due.Add(59*time.Minute), test.by))
		want("other args", test.otherArgs, insert(`{"a":2}`, "", due, test.by))
		want("another queue", test.otherQueue, insert(`{"a":1,"b":{"c":2}}`, "slow", due, test.by))
		want("another hour", test.otherTime, insert(`{"a":1,"b":{"c":2}}`, "", due.Add(time.Hour), test.by))
		exec(t, pool, `UPDATE river_job SET state = 'completed', finalized_at = now()`)
		want("after one has completed", test.afterCompleted, insert(`{"a":1,"b":{"c":2}}`, "", due, test.by))
		exec(t, pool, `UPDATE river_job SET state = 'cancelled'`)
		want("after one was cancelled", test.cancelled, insert(`{"a":1,"b":{"c":2}}`, "", due, test.by))
	}
}

func TestLargeArgsAreRejectedOnInsert(t *testing.T) {
	t.Parallel()
	inserter, err := jobs.NewInserter(pgtest.Pool(t), "")
	if err != nil {
		t.Fatal(err)
	}
	args := func(bytes int) json.RawMessage { return fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("x", bytes-8)) }
	if _, err := inserter.Insert(t.Context(), jobstore.NewJob{Kind: "k1", Args: args(64 << 10)}); err != nil {
		t.Errorf("64 KiB: %v", err)
	}
	_, err = inserter.Insert(t.Context(), jobstore.NewJob{Kind: "k1", Args: args(64<<10 + 1)})
	if want := "a job of kind k1: args: too large (got 65537 bytes as JSON); want at most 64 KiB"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Any client may have written the row, for example a Go program.
func TestLargeArgsInRowAreRejected(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"print": once(shell(`printf %s "$FORGE_ARGS" | wc -c`))})
	for numbers, want := range map[int]string{
		30_000: "", // 64 kB, or 90 kB with the database's spaces
		40_000: "args: too large (got 80007 bytes as JSON); want at most 64 KiB",
	} {
		var large int64
		err := n.pool.QueryRow(t.Context(), `INSERT INTO river_job (kind, args, max_attempts, queue)
			SELECT 'print', jsonb_build_object('a', array_agg(7)), 1, 'default' FROM generate_series(1, $1) RETURNING id`, numbers).Scan(&large)
		if err != nil {
			t.Fatal(err)
		}
		n.offer(t, large)
		if job := n.finish(t, large, "completed", "discarded"); job.LastError != want {
			t.Errorf("%d numbers: %s, %q, want %q", numbers, job.State, job.LastError, want)
		}
	}
}

// Arguments in a row need not be an object: jobs without code get them unchanged, and a Go
// worker's attempt fails with the error of encoding/json.
func TestArgsInRowNeedNotBeAnObject(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		n := startNode(t, map[string]config.Job{
			"print": once(shell(`printf %s "$FORGE_ARGS"`)),
			"query": once(config.Job{Kind: "sql", Statement: "SELECT @args::jsonb AS args"}),
		}, add.worker(func(context.Context) error { return nil }))
		work := func(kind, args string) jobstore.Job {
			t.Helper()
			var id int64
			err := n.pool.QueryRow(t.Context(), `INSERT INTO river_job (kind, args, max_attempts, queue) VALUES ($1, $2::text::jsonb, 1, 'default') RETURNING id`,
				kind, args).Scan(&id)
			if err != nil {
				t.Fatal(err)
			}
			n.offer(t, id)
			return n.finish(t, id, "completed", "discarded")
		}
		for args, went := range map[string]string{"[1]": "array", `"x"`: "string", "7": "number", "true": "bool"} {
			for _, kind := range []string{"print", "query"} {
				job := work(kind, args)
				if output := n.logs(t, job.ID, 1, "stdout"); job.State != "completed" || !strings.Contains(output, args) {
					t.Errorf("%s with %s: %s, %q, output %q", kind, args, job.State, job.LastError, output)
				}
			}
			if job := work("greet", args); job.State != "discarded" || !strings.Contains(job.LastError, "json: cannot unmarshal "+went) {
				t.Errorf("a Go worker with %s: %s, %q", args, job.State, job.LastError)
			}
		}
	})
}
