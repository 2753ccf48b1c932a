package crons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

func TestLeadFiresEverySecondOnTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	spec := everySecond("allow")
	spec.Args, spec.Queue, spec.Priority = json.RawMessage(`{"n": 1}`), "mail", 2
	spec.Capability, spec.Tags = "gpu", map[string]string{"zone": "a"}
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": spec})
	firer := newFirer(t, pool, newInserter(t, pool))
	stop := lead(t, firer, makeLeader(t, pool, "n1"))
	await(t, pool, 3, ledgerCountSQL)
	if err := stop(); err != nil {
		t.Fatalf("Lead: %v", err)
	}
	ticks, err := cronstore.New(pool).Ticks(t.Context(), "c", time.Time{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	unsure := 0 // the term may end between the last commit and its acknowledgement
	for _, tick := range ticks {
		if tick.RecordedAt.Equal(ticks[0].RecordedAt) {
			unsure++
		}
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
	if got := int(testutil.ToFloat64(firer.meter.metrics.CronRuns.WithLabelValues("c"))); got != len(ticks) && got != len(ticks)-unsure {
		t.Errorf("forge_cron_runs_total is %d, want %d", got, len(ticks))
	}
}

func TestEveryTickIsRecordedOnceAcrossTerms(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": everySecond("allow"), "b": everySecond("allow")})
	var firers []*Firer
	for seed := range uint64(2) {
		inserter := newInserter(t, pool)
		random := rand.New(rand.NewPCG(seed, 1))
		inserter.before = func(ctx context.Context) { // half of the terms end inside a transaction
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
			}
		}
		firers = append(firers, newFirer(t, pool, inserter))
	}
	const terms = 24
	var (
		leads      sync.WaitGroup
		ended      = make([]error, terms)
		firerLocks = make([]sync.Mutex, len(firers))
	)
	ctx, cancel := context.WithCancel(t.Context())
	random := rand.New(rand.NewPCG(3, 1))
	for i := range terms {
		fence := makeLeader(t, pool, fmt.Sprintf("n%d", i%len(firers)+1))
		firer, firerLock := firers[i%len(firers)], &firerLocks[i%len(firers)]
		leads.Go(func() { // the previous leader is not stopped: the fence stops it
			firerLock.Lock()
			defer firerLock.Unlock()
			ended[i] = firer.Lead(ctx, fence)
		})
		time.Sleep(time.Duration(100+random.IntN(350)) * time.Millisecond) // the length of a term
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
	old := makeLeader(t, pool, "n1")
	makeLeader(t, pool, "n2")
	firer := newFirer(t, pool, newInserter(t, pool))
	old.Refused = firer.meter.metrics.LeaderFencedWrites.WithLabelValues("scheduler", "n1")
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
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

// The next term is acquired after the transaction that passed the fence.
func TestTakeoverWaitsForFencedTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"c": everySecond("allow")})
	fence := makeLeader(t, pool, "n1")
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
	acquired := make(chan leaderstore.Fence, 1)
	go func() { acquired <- makeLeader(t, pool, "n2") }()
	await(t, pool, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	select {
	case <-acquired:
		t.Error("a term was acquired inside another term's transaction")
	default:
	}
	close(proceed)
	<-acquired
	await(t, pool, 1, ledgerCountSQL)
	if err := stop(); err != nil && !errors.Is(err, leaderstore.ErrDeposed) {
		t.Error(err)
	}
}

func TestChangedCronsReachLeader(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	stop := lead(t, newFirer(t, pool, newInserter(t, pool)), makeLeader(t, pool, "n1"))
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

// The leader keeps no timeline of a cron that is not due soon, even if the cron has
// fired.
func TestDefinitionsOfRareCronsAreDropped(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	rare := everySecond("allow")
	rare.Schedule = fmt.Sprintf("%d * * * *", time.Now().UTC().Add(30*time.Minute).Minute()) // due half an hour ago and in half an hour
	apply(t, pool, "h1", map[string]cronstore.Spec{"often": everySecond("allow"), "rare": rare})
	rewind(t, pool, time.Hour)
	firer := newFirer(t, pool, newInserter(t, pool))
	tickLedger := newLedger(firer.options, makeLeader(t, pool, "n1"), newTermCache(), firer.meter, slog.New(slog.DiscardHandler))
	tickLedger.tickLimit = postgres.NewBatchSize(maxTicks, time.Hour) // the limit of a fast machine
	for round := range 2 {
		done, err := tickLedger.Fire(t.Context(), []string{"often", "rare"}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if len(done.Next) != 2 || tickLedger.timelines["often"] == nil || tickLedger.timelines["rare"] != nil {
			t.Errorf("round %d: %d crons checked, cached %v", round, len(done.Next), slices.Collect(maps.Keys(tickLedger.timelines)))
		}
		rewind(t, pool, time.Hour)
	}
	if fired := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'rare'`); fired == 0 {
		t.Error("a cron without a cached timeline did not fire")
	}
}
