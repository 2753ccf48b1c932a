package crons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// riverInserter inserts with a client of River's that works no jobs.
type riverInserter struct {
	client *river.Client[pgx.Tx]
	before func(ctx context.Context) // called first, if set
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
	results, err := i.client.InsertManyTx(ctx, tx, params)
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
	})
}

// mint makes node the scheduler's leader, as the election would.
func mint(t *testing.T, pool *pgxpool.Pool, node string) leaderstore.Fence {
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
	if _, err := cronstore.Apply(t.Context(), pool, cronstore.Applied{Hash: hash, NodeID: "n1", Crons: crons}, false); err != nil {
		t.Fatal(err)
	}
}

// lead leads in the background and returns how it ended, when asked, after
// stopping it.
func lead(t *testing.T, firer *Firer, fence leaderstore.Fence) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- firer.Lead(ctx, fence) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// await waits until a query's number is at least want.
func await(t *testing.T, pool *pgxpool.Pool, want int64, sql string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
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

// rewind pretends that nobody recorded a cron's ticks for a while.
func rewind(t *testing.T, pool *pgxpool.Pool, ago time.Duration) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		UPDATE forge_crons SET watermark = date_trunc('second', clock_timestamp()) - $1::interval,
		       next_tick = date_trunc('second', clock_timestamp()) - $1::interval + interval '1 second'`, ago)
	if err != nil {
		t.Fatal(err)
	}
}

const ledgerCountSQL = `SELECT count(*) FROM forge_cron_ticks`

// holesSQL counts seconds between the first tick and the watermark that do not
// stand in exactly one row of the ledger.
const holesSQL = `
SELECT count(*) FROM (
    SELECT s.at FROM (SELECT min(tick) AS first FROM forge_cron_ticks WHERE cron = $1) AS f,
         forge_crons AS c, generate_series(f.first, c.watermark, interval '1 second') AS s (at)
    LEFT JOIN forge_cron_ticks AS t ON t.cron = $1 AND s.at BETWEEN t.tick AND coalesce(t.last_tick, t.tick)
    WHERE c.name = $1
    GROUP BY s.at HAVING count(t.tick) <> 1) AS wrong`

// mismatchSQL counts ticks that fired without exactly one job of their own.
const mismatchSQL = `
SELECT count(*) FROM forge_cron_ticks AS t
WHERE t.verdict IN ('fired', 'caught_up') AND 1 <> (
    SELECT count(*) FROM river_job AS j
    WHERE j.metadata ->> 'forge:cron' = t.cron AND (j.metadata ->> 'forge:tick')::timestamptz = t.tick
      AND j.id = t.job_id AND (j.metadata ->> 'forge:term')::bigint = t.term)`

func TestLeadFiresEverySecondOnTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	spec := everySecond("allow")
	spec.Args, spec.Queue, spec.Priority = json.RawMessage(`{"n": 1}`), "mail", 2
	spec.Capability, spec.Tags = "gpu", map[string]string{"zone": "a"}
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
	firer := newFirer(t, pool, newInserter(t, pool))
	stop := lead(t, firer, mint(t, pool, "n1"))
	await(t, pool, 3, ledgerCountSQL)
	if err := stop(); err != nil {
		t.Fatalf("Lead: %v", err)
	}
	ticks, err := cronstore.Ticks(t.Context(), pool, "c", time.Time{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, tick := range ticks {
		if tick.Verdict != cronstore.Fired || tick.JobID == 0 || tick.Term != 1 || tick.NodeID != "n1" {
			t.Errorf("row %+v", tick)
		}
		recorded := float64(tick.RecordedAt.Sub(tick.Tick).Microseconds()) / 1000
		if tick.LatenessMS < 0 || recorded < 0 || tick.LatenessMS > recorded+1 {
			t.Errorf("tick %s was recorded at %s, %f ms late", tick.Tick, tick.RecordedAt, tick.LatenessMS)
		}
	}
	if wrong := count(t, pool, holesSQL, "c") + count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	var job, want string
	if err := pool.QueryRow(t.Context(), `
		SELECT concat_ws(' ', kind, queue, priority, args, metadata - 'forge:tick', state) FROM river_job LIMIT 1`).Scan(&job); err != nil {
		t.Fatal(err)
	}
	want = `tidy mail 2 {"n": 1} {"forge:cron": "c", "forge:tags": {"zone": "a"}, "forge:term": 1, "forge:capability": "gpu"} available`
	if job != want {
		t.Errorf("got  %s\nwant %s", job, want)
	}
	// The end may come between the last commit and its acknowledgement.
	if got := int(testutil.ToFloat64(firer.meter.metrics.CronRuns.WithLabelValues("c"))); got != len(ticks) && got != len(ticks)-1 {
		t.Errorf("forge_cron_runs_total is %d, want %d", got, len(ticks))
	}
}

func TestEverySecondOnceWhateverTheTerm(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": everySecond("allow"), "b": everySecond("allow")})
	var firers []*Firer
	for seed := range uint64(2) {
		inserter := newInserter(t, pool)
		random := rand.New(rand.NewPCG(seed, 1))
		inserter.before = func(ctx context.Context) { // half of the changes of term strike inside a transaction
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
			}
		}
		firers = append(firers, newFirer(t, pool, inserter))
	}
	const terms = 24
	var (
		leads sync.WaitGroup
		ended = make([]error, terms)
		turns = make([]sync.Mutex, len(firers))
	)
	ctx, cancel := context.WithCancel(t.Context())
	random := rand.New(rand.NewPCG(3, 1))
	for i := range terms {
		fence := mint(t, pool, fmt.Sprintf("n%d", i%len(firers)+1))
		firer, turn := firers[i%len(firers)], &turns[i%len(firers)]
		leads.Go(func() { // the one before is not told: the fence tells it
			turn.Lock()
			defer turn.Unlock()
			ended[i] = firer.Lead(ctx, fence)
		})
		time.Sleep(time.Duration(100+random.IntN(350)) * time.Millisecond) // the length of a term, not a wait
	}
	await(t, pool, int64(2*terms*250/1000), ledgerCountSQL)
	await(t, pool, terms, `SELECT max(term) FROM forge_cron_ticks`)
	cancel()
	leads.Wait()
	for i, err := range ended {
		if err != nil && !errors.Is(err, leaderstore.ErrDeposed) {
			t.Errorf("term %d ended with %v", i+1, err)
		}
	}
	for _, cron := range []string{"a", "b"} {
		if holes := count(t, pool, holesSQL, cron); holes != 0 {
			t.Errorf("cron %s: %d seconds lost or doubled", cron, holes)
		}
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d ticks without exactly one job", wrong)
	}
	if jobs, fires := count(t, pool, `SELECT count(*) FROM river_job`), count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired'`); jobs != fires {
		t.Errorf("%d jobs for %d ticks that fired", jobs, fires)
	}
}

func TestDeposedLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("allow")})
	rewind(t, pool, 5*time.Second)
	old := mint(t, pool, "n1")
	mint(t, pool, "n2")
	firer := newFirer(t, pool, newInserter(t, pool))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := firer.Lead(ctx, old); !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("Lead: %v, want ErrDeposed", err)
	}
	if rows := count(t, pool, `SELECT (SELECT count(*) FROM forge_cron_ticks) + (SELECT count(*) FROM river_job)`); rows != 0 {
		t.Errorf("a deposed leader wrote %d rows", rows)
	}
	if refused := testutil.ToFloat64(firer.meter.metrics.LeaderFencedWrites.WithLabelValues("scheduler", "n1")); refused != 1 {
		t.Errorf("forge_leader_fenced_writes_total is %f, want 1", refused)
	}
}

// A take-over waits for the transaction that passed the fence.
func TestTakeOverWaitsForTheTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("allow")})
	fence := mint(t, pool, "n1")
	inserter := newInserter(t, pool)
	inside, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	inserter.before = func(ctx context.Context) {
		once.Do(func() {
			close(inside)
			select {
			case <-proceed:
			case <-ctx.Done():
			}
		})
	}
	stop := lead(t, newFirer(t, pool, inserter), fence)
	<-inside
	minted := make(chan leaderstore.Fence, 1)
	go func() { minted <- mint(t, pool, "n2") }()
	await(t, pool, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	select {
	case <-minted:
		t.Error("a term was minted inside another term's transaction")
	default:
	}
	close(proceed)
	<-minted
	await(t, pool, 1, ledgerCountSQL)
	if err := stop(); err != nil && !errors.Is(err, leaderstore.ErrDeposed) {
		t.Error(err)
	}
}

func TestCatchUpAcrossAHole(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, catchUp  string
		caughtUp, rows int64
	}{
		{"none", "none", 0, 1},
		{"latest", "latest", 1, 2},
		{"all", "all", 10, 11},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			spec := everySecond("allow")
			spec.CatchUp = tt.catchUp
			apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
			rewind(t, pool, 10*time.Minute)
			stop := lead(t, newFirer(t, pool, newInserter(t, pool)), mint(t, pool, "n1"))
			await(t, pool, 60, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired'`)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if got := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'caught_up'`); got != tt.caughtUp {
				t.Errorf("%d caught up, want %d", got, tt.caughtUp)
			}
			if got := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict <> 'fired'`); got != tt.rows {
				t.Errorf("%d rows for the hole, want %d", got, tt.rows)
			}
			if wrong := count(t, pool, holesSQL, "c") + count(t, pool, mismatchSQL); wrong != 0 {
				t.Errorf("%d wrong rows", wrong)
			}
		})
	}
}

// An outage of two days: more ticks than a slice holds, and one of them was
// triggered by hand.
func TestLongOutageIsAFewRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("allow"), "fresh": everySecond("allow")})
	rewind(t, pool, 48*time.Hour)
	if _, err := pool.Exec(t.Context(), `
		UPDATE forge_crons SET watermark = clock_timestamp(), next_tick = clock_timestamp() WHERE name = 'fresh'`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id)
		SELECT 'c', next_tick, 'triggered', 1, 'n1' FROM forge_crons WHERE name = 'c'`); err != nil {
		t.Fatal(err)
	}
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), mint(t, pool, "n1"))
	await(t, pool, 60, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c' AND verdict = 'fired'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	skipped := count(t, pool, `SELECT sum(tick_count) FROM forge_cron_ticks WHERE verdict LIKE 'skipped%'`)
	if want := int64(47 * 3600); skipped < want {
		t.Errorf("%d ticks skipped, want at least %d", skipped, want)
	}
	if rows := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict LIKE 'skipped%'`); rows > 15 {
		t.Errorf("the outage takes %d rows", rows)
	}
	if holes := count(t, pool, holesSQL, "c"); holes != 0 {
		t.Errorf("%d seconds lost or doubled", holes)
	}
}

func TestOverlapSkip(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("skip"), "other": everySecond("skip")})
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), mint(t, pool, "n1"))
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c' AND verdict = 'skipped_overlap'`)
	if _, err := pool.Exec(t.Context(), `
		UPDATE river_job SET state = 'completed', finalized_at = now() WHERE metadata ->> 'forge:cron' = 'c'`); err != nil {
		t.Fatal(err)
	}
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c' AND verdict = 'fired'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if fired := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'other' AND verdict = 'fired'`); fired != 1 {
		t.Errorf("the other cron fired %d times beside its own run, want 1", fired)
	}
}

func TestChangesReachTheLeader(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), mint(t, pool, "n1"))
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": everySecond("allow")})
	await(t, pool, 1, ledgerCountSQL)
	apply(t, pool, "h2", map[string]cronstore.Spec{"b": everySecond("allow")})
	await(t, pool, 2, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'b'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if late := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks AS t JOIN forge_crons AS c ON c.name = t.cron
		WHERE t.tick > c.removed_at`); late != 0 {
		t.Errorf("%d ticks of a removed cron", late)
	}
}

// One job that nobody can insert does not keep the others from firing.
func TestRefusedJobFailsAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	crons := map[string]cronstore.Spec{}
	for i := range 20 {
		crons[fmt.Sprintf("c%02d", i)] = everySecond("allow")
	}
	bad, worse := everySecond("allow"), everySecond("allow")
	bad.Queue, worse.Priority = "no such queue!", 9
	crons["bad"], crons["worse"] = bad, worse
	apply(t, pool, "h1", crons)
	firer := newFirer(t, pool, newInserter(t, pool))
	stop := lead(t, firer, mint(t, pool, "n1"))
	await(t, pool, 22, ledgerCountSQL)
	failures := firer.meter.metrics.CronFailures.WithLabelValues("bad")
	for deadline := time.Now().Add(10 * time.Second); testutil.ToFloat64(failures) == 0; {
		if time.Now().After(deadline) { // it is counted once the commit is acknowledged
			t.Fatal("forge_cron_failures_total is 0")
		}
		time.Sleep(time.Millisecond)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if wrong := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks
		WHERE (verdict = 'failed') <> (cron IN ('bad', 'worse')) OR (verdict = 'failed') <> (job_id IS NULL)
		   OR (verdict = 'failed') <> (reason LIKE 'The job could not be inserted: %')`); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
}

func TestTwoThousandCronsInOneBatch(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	crons := map[string]cronstore.Spec{}
	for i := range 2000 {
		crons[fmt.Sprintf("c%04d", i)] = everySecond("skip")
	}
	apply(t, pool, "h1", crons)
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), mint(t, pool, "n1"))
	await(t, pool, 4000, ledgerCountSQL)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if missing := 2000 - count(t, pool, `SELECT count(DISTINCT metadata ->> 'forge:cron') FROM river_job`); missing != 0 {
		t.Errorf("%d crons without a job", missing)
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
	var p99 float64
	if err := pool.QueryRow(t.Context(), `
		SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY lateness_ms) FROM forge_cron_ticks`).Scan(&p99); err != nil {
		t.Fatal(err)
	}
	t.Logf("lateness of 2,000 crons a second: p99 %.0f ms", p99)
}

// River's limiter lets the second of two inserts pass in silence; the listener
// hears of both.
func TestEachBatchAnnouncesItsQueues(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), `LISTEN "public.river_insert"`); err != nil {
		t.Fatal(err)
	}
	crons := map[string]cronstore.Spec{"c": everySecond("allow")}
	apply(t, pool, "h1", crons)
	firer := newFirer(t, pool, newInserter(t, pool))
	desk := newLedger(firer.options, "public", mint(t, pool, "n1"), firer.meter, firer.options.Logger)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 {
		rewind(t, pool, 3*time.Second)
		if _, err := pool.Exec(ctx, `DELETE FROM forge_cron_ticks`); err != nil {
			t.Fatal(err)
		}
		if _, err := desk.Fire(ctx, []string{"c"}); err != nil {
			t.Fatal(err)
		}
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			t.Fatalf("a batch was not announced: %v", err)
		}
		if notification.Payload != `{"queue": "default"}` {
			t.Errorf("payload %s", notification.Payload)
		}
	}
}
