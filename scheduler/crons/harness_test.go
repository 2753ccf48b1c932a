package crons

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

// riverInserter inserts jobs with a River client that runs no jobs.
type riverInserter struct {
	client *river.Client[pgx.Tx]
	before func(ctx context.Context) // called before each insert, if set
}

func (i *riverInserter) Cancel(ctx context.Context, tx pgx.Tx, id int64) error {
	_, err := i.client.JobCancelTx(ctx, tx, id)
	return err
}

type dynamicArgs struct {
	kind string
	body json.RawMessage
}

func (a dynamicArgs) Kind() string                 { return a.kind }
func (a dynamicArgs) MarshalJSON() ([]byte, error) { return a.body, nil }

type reservedKey struct{}

// withReserved sets the ids and the scheduled times that the ledger has chosen for the
// jobs.
var withReserved = river.JobInsertMiddlewareFunc(func(ctx context.Context, jobs []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	for i, job := range ctx.Value(reservedKey{}).([]jobstore.NewJob) { //nolint:forcetypeassert // InsertMany puts it there
		if job.ID != 0 {
			jobs[i].ID = &job.ID
		}
		if !job.ReadyAt.IsZero() {
			jobs[i].ScheduledAt = &job.ReadyAt
		}
	}
	return insert(ctx)
})

func (i *riverInserter) InsertMany(ctx context.Context, tx pgx.Tx, jobs []jobstore.NewJob) ([]int64, error) {
	if i.before != nil {
		i.before(ctx)
	}
	params := make([]river.InsertManyParams, len(jobs))
	for n, job := range jobs {
		metadata, err := json.Marshal(job.Metadata)
		if err != nil {
			return nil, err
		}
		params[n] = river.InsertManyParams{
			Args: dynamicArgs{job.Kind, job.Args},
			InsertOpts: &river.InsertOpts{
				Queue: job.Queue, Priority: job.Priority, MaxAttempts: job.MaxAttempts, Metadata: metadata,
			},
		}
	}
	results, err := i.client.InsertManyTx(context.WithValue(ctx, reservedKey{}, jobs), tx, params)
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(results))
	for n, result := range results {
		ids[n] = result.Job.ID
	}
	return ids, nil
}

func newInserter(t *testing.T, pool *pgxpool.Pool) *riverInserter {
	t.Helper()
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		SkipUnknownJobCheck: true, LeaderElectionDisabled: true, Logger: slog.New(slog.DiscardHandler),
		FetchCooldown: waitTimeout, FetchPollInterval: waitTimeout, // the client must not send notifications itself
		Middleware: []rivertype.Middleware{withReserved},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &riverInserter{client: client}
}

func newFirer(t *testing.T, pool *pgxpool.Pool, inserter Inserter) *Firer {
	t.Helper()
	return New(Options{
		Pool: pool, Inserter: inserter, Metrics: metrics.New("test"), Logger: slog.New(slog.DiscardHandler),
		Schema: "public", Notifier: postgres.NewNotifier(pool, slog.New(slog.DiscardHandler)),
	})
}

// makeLeader makes node the scheduler's leader with a new term.
func makeLeader(t *testing.T, pool *pgxpool.Pool, node string) leaderstore.Fence {
	t.Helper()
	fence := leaderstore.Fence{Role: "scheduler", NodeID: node, Incarnation: "incarnation-" + node}
	err := pool.QueryRow(context.WithoutCancel(t.Context()), `
		INSERT INTO forge_leaders (role, node_id, incarnation, term) VALUES ('scheduler', $1, $2, 1)
		ON CONFLICT (role) DO UPDATE SET term = forge_leaders.term + 1, node_id = $1, incarnation = $2
		RETURNING term`, fence.NodeID, fence.Incarnation).Scan(&fence.Term)
	if err != nil {
		t.Fatal(err)
	}
	return fence
}

func everySecond(overlap string) cronstore.Spec {
	return cronstore.Spec{
		Schedule: "* * * * * *", Timezone: "UTC", Job: "tidy", Overlap: overlap, CatchUp: "latest",
		CatchUpMax: 10, CatchUpSpan: config.Duration(time.Hour), DSTMissing: "run-after", DSTRepeated: "first",
	}
}

func apply(t *testing.T, pool *pgxpool.Pool, hash string, crons map[string]cronstore.Spec) {
	t.Helper()
	if _, err := cronstore.New(pool).Apply(t.Context(), cronstore.Applied{Hash: hash, NodeID: "n1", Crons: crons}, false); err != nil {
		t.Fatal(err)
	}
}

// lead runs Lead in the background. stop ends it and returns its error.
func lead(t *testing.T, firer *Firer, fence leaderstore.Fence) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- firer.Lead(ctx, fence) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// await waits until the result of a query is at least want.
func await(t *testing.T, pool *pgxpool.Pool, want int64, sql string) {
	t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for {
		got := count(t, pool, sql)
		if got >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %d, want at least %d", sql, got, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// rewind moves the watermarks of all crons back.
func rewind(t *testing.T, pool *pgxpool.Pool, ago time.Duration) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		UPDATE forge_crons SET watermark = date_trunc('second', clock_timestamp()) - $1::interval,
		       next_tick = date_trunc('second', clock_timestamp()) - $1::interval + interval '1 second'`, ago)
	if err != nil {
		t.Fatal(err)
	}
}

// waitTimeout is the time limit for an expected event.
const waitTimeout = time.Minute

const ledgerCountSQL = `SELECT count(*) FROM forge_cron_ticks`

// holesSQL counts the seconds from the first tick to the watermark, or to the cron's
// removal, that are not covered by exactly one ledger row.
const holesSQL = `
SELECT count(*) FROM (
    SELECT s.at FROM (SELECT min(tick) AS first FROM forge_cron_ticks WHERE cron = $1) AS f,
         forge_crons AS c, generate_series(f.first, least(c.watermark, c.removed_at), interval '1 second') AS s (at)
    LEFT JOIN forge_cron_ticks AS t ON t.cron = $1 AND s.at BETWEEN t.tick AND coalesce(t.last_tick, t.tick)
    WHERE c.name = $1
    GROUP BY s.at HAVING count(t.tick) <> 1) AS wrong`

// mismatchSQL counts the fired ticks without exactly one job.
const mismatchSQL = `
SELECT count(*) FROM forge_cron_ticks AS t
WHERE t.verdict IN ('fired', 'caught_up') AND 1 <> (
    SELECT count(*) FROM river_job AS j
    WHERE j.metadata ->> 'forge:cron' = t.cron AND (j.metadata ->> 'forge:tick')::timestamptz = t.tick
      AND j.id = t.job_id AND (j.metadata ->> 'forge:term')::bigint = t.term)`
