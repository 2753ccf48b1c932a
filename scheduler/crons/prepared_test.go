package crons

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// earlySQL counts the rows that are visible before their time: the snapshot is older than
// the clock that they are compared with.
const earlySQL = `
SELECT (SELECT count(*) FROM forge_cron_ticks WHERE tick > clock_timestamp())
     + (SELECT count(*) FROM river_job WHERE (metadata ->> 'forge:tick')::timestamptz > clock_timestamp())`

// preparedSQL counts the jobs that were inserted before their tick.
const preparedSQL = `SELECT count(*) FROM river_job WHERE created_at < (metadata ->> 'forge:tick')::timestamptz`

// sleepingSQL counts the transactions that wait for their commit time.
const sleepingSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`

func cronsDueTogether(n int, overlap string) (names []string, specs map[string]cronstore.Spec) {
	specs = map[string]cronstore.Spec{}
	for i := range n {
		name := fmt.Sprintf("c%03d", i)
		names, specs[name] = append(names, name), everySecond(overlap)
	}
	return names, specs
}

// newTestLedger returns the ledger of a new term. It uses ledgerPool for its queries.
func newTestLedger(t *testing.T, pool, ledgerPool *pgxpool.Pool) *ledger {
	t.Helper()
	firer := newFirer(t, ledgerPool, newInserter(t, pool))
	return newLedger(firer.options, makeLeader(t, pool, "n1"), newTermCache(), firer.meter, firer.options.Logger)
}

// fireOutcome is the result of fireInBackground.
type fireOutcome struct {
	fireResult
	err error
}

// fireInBackground calls Fire in the background and sends its result.
func fireInBackground(t *testing.T, tickLedger *ledger, names []string, at time.Time) <-chan fireOutcome {
	t.Helper()
	done := make(chan fireOutcome, 1)
	go func() {
		fired, err := tickLedger.Fire(t.Context(), names, at)
		done <- fireOutcome{fired, err}
	}()
	return done
}

// secondsAhead returns a whole second that is n seconds ahead of the database's clock.
func secondsAhead(t *testing.T, pool *pgxpool.Pool, n int) time.Time {
	t.Helper()
	now, err := cronstore.New(pool).Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now.Truncate(time.Second).Add(time.Duration(n) * time.Second)
}

// retryUntilReady repeats an attempt with more and more preparation time until the
// machine is fast enough for it.
func retryUntilReady(t *testing.T, attempt func(t *testing.T, seconds int) (ready bool)) {
	t.Helper()
	for seconds := 3; !attempt(t, seconds); seconds *= 2 {
		if seconds > 30 {
			t.Fatalf("nothing was ready within %d seconds", seconds)
		}
		t.Logf("not ready within %d seconds, trying again", seconds)
	}
}

// Earlier ticks that fall due in the meantime are part of the batch.
func TestBatchIsPreparedAndCommittedWhenDue(t *testing.T) {
	t.Parallel()
	retryUntilReady(t, func(t *testing.T, seconds int) bool {
		t.Helper()
		pool := pgtest.Pool(t)
		names, specs := cronsDueTogether(60, "allow")
		apply(t, pool, "h1", specs)
		tickLedger := newTestLedger(t, pool, pool)
		at := secondsAhead(t, pool, seconds)
		done := fireInBackground(t, tickLedger, names, at)
		for ended := false; !ended; {
			if early := count(t, pool, earlySQL); early > 0 {
				t.Fatalf("%d rows are visible before their time", early)
			}
			select {
			case batch := <-done:
				if batch.err != nil {
					t.Fatal(batch.err)
				}
				ended = true
			default:
			}
		}
		if prepared := count(t, pool, preparedSQL); prepared < 60 {
			return false
		}
		if wrong := count(t, pool, `
			SELECT count(*) FROM forge_cron_ticks t JOIN river_job j ON j.id = t.job_id
			WHERE recorded_at < tick OR j.state <> 'available' OR scheduled_at <> $1`, at); wrong != 0 {
			t.Errorf("%d ticks are recorded, or jobs available, before their time", wrong)
		}
		if wrong := count(t, pool, mismatchSQL); wrong != 0 {
			t.Errorf("%d wrong rows", wrong)
		}
		return true
	})
}

// Another leader can take over while a batch waits for its commit time. The prepared
// batch is rolled back.
func TestPreparedBatchDoesNotDelayTakeover(t *testing.T) {
	t.Parallel()
	retryUntilReady(t, func(t *testing.T, seconds int) bool {
		t.Helper()
		pool := pgtest.Pool(t)
		names, specs := cronsDueTogether(30, "allow")
		apply(t, pool, "h1", specs)
		tickLedger := newTestLedger(t, pool, pool)
		at := secondsAhead(t, pool, seconds)
		done := fireInBackground(t, tickLedger, names, at)
		await(t, pool, 1, `SELECT count(*) FROM (`+sleepingSQL+`) AS s (n) WHERE n > 0 OR clock_timestamp() >= '`+at.Format(time.RFC3339)+`'`)
		makeLeader(t, pool, "n2")
		now, err := tickLedger.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		batch := <-done
		if !now.Before(at) {
			return false
		}
		if !errors.Is(batch.err, leaderstore.ErrDeposed) {
			t.Errorf("the deposed leader's batch: %v, want ErrDeposed", batch.err)
		}
		if n := count(t, pool, ledgerCountSQL); n != 0 {
			t.Errorf("%d ticks of a deposed leader are in the ledger", n)
		}
		return true
	})
}

// If a leader dies while its batch waits, the server ends the sleep and releases the
// locks.
func TestPreparedBatchOfDeadLeaderReleasesLocks(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool, link := pgtest.Connect(t, url), pgtest.Proxy(t, url)
	names, specs := cronsDueTogether(30, "allow")
	apply(t, pool, "h1", specs)
	tickLedger := newTestLedger(t, pool, pgtest.Connect(t, link.URL()))
	fired := fireInBackground(t, tickLedger, names, time.Now().Add(10*waitTimeout))
	await(t, pool, 1, sleepingSQL)
	link.Cut()
	if (<-fired).err == nil {
		t.Error("fired without a connection")
	}
	await(t, pool, 1, `SELECT count(*) FROM pg_database WHERE datname = current_database() AND NOT EXISTS (
		SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`)
}

// A run may be active when its cron is prepared and have ended when the tick is due. The
// state at the due time decides.
func TestRunThatEndsBeforeTickDoesNotBlockIt(t *testing.T) {
	t.Parallel()
	retryUntilReady(t, func(t *testing.T, seconds int) bool {
		t.Helper()
		pool := pgtest.Pool(t)
		names, specs := cronsDueTogether(2, "skip")
		at := secondsAhead(t, pool, seconds)
		for name, spec := range specs { // at is the last tick of each
			spec.EndAt = at.Add(time.Second)
			specs[name] = spec
		}
		apply(t, pool, "h1", specs)
		tickLedger := newTestLedger(t, pool, pool)
		rewind(t, pool, time.Second)
		if _, err := tickLedger.Fire(t.Context(), names, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), `
			UPDATE river_job SET state = 'completed', finalized_at = now() WHERE metadata ->> 'forge:cron' = 'c001'`); err != nil {
			t.Fatal(err)
		}
		before := count(t, pool, ledgerCountSQL)
		done, err := tickLedger.Fire(t.Context(), names, at)
		if err != nil {
			t.Fatal(err)
		}
		if !done.Now.Before(at) {
			return false
		}
		if now, err := tickLedger.Now(t.Context()); err != nil || now.Before(at) {
			t.Errorf("committed at %s, before %s (%v)", now, at, err)
		}
		if next := done.Next["c000"]; !next.Equal(at) {
			t.Errorf("the busy cron is checked again at %s, want %s", next, at)
		}
		if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c000'`); n >= before {
			t.Errorf("the busy cron has %d rows already", n)
		}
		finish(t, pool)
		if _, err := tickLedger.Fire(t.Context(), names[:1], time.Time{}); err != nil {
			t.Fatal(err)
		}
		if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c000' AND tick = $1 AND verdict = 'fired'`, at); n != 1 {
			t.Error("a run that had ended kept the tick from firing")
		}
		return true
	})
}

// The lateness of a tick includes the wait for the commit. A tick that is already due is
// decided at once, so a busy cron is not postponed repeatedly by crons that keep falling
// due.
func TestPreparedTicksAreRecordedAtCommitTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tickLedger := newTestLedger(t, pool, pool)
	half := time.Now().Add(-30 * time.Minute)
	hourly := everySecond("skip")
	hourly.Schedule = fmt.Sprintf("@every 1h/%ds", half.Unix()%3600)
	apply(t, pool, "h1", map[string]cronstore.Spec{"busy": hourly, "fresh": everySecond("allow")})
	rewind(t, pool, time.Hour)
	if _, err := manualOn(t, pool).Trigger(t.Context(), cronstore.Trigger{Cron: "busy", By: "test"}); err != nil {
		t.Fatal(err)
	}
	at := secondsAhead(t, pool, 2).Add(8 * time.Millisecond)
	if _, err := tickLedger.Fire(t.Context(), []string{"busy", "fresh"}, at); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE recorded_at < $1 AND verdict <> 'triggered'`, at); n != 0 {
		t.Errorf("%d ticks are recorded before they could be seen", n)
	}
	if n := count(t, pool, `
		SELECT count(*) FROM forge_cron_ticks
		WHERE cron = 'fresh' AND verdict = 'fired' AND tick = date_trunc('second', $1::timestamptz) AND lateness_ms >= 8`, at); n != 1 {
		t.Error("the newest tick was not recorded as 8 ms late")
	}
	if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'busy' AND verdict = 'skipped_overlap'`); n != 1 {
		t.Error("a due tick of a busy cron was postponed")
	}
}

// The transaction of prepared ticks itself offers their jobs to a node.
func TestPreparedTicksOfferTheirJobs(t *testing.T) {
	t.Parallel()
	retryUntilReady(t, func(t *testing.T, seconds int) bool {
		t.Helper()
		url := pgtest.URL(t)
		pool, ledgerPool := pgtest.Connect(t, url), pgtest.Connect(t, url)
		names, specs := cronsDueTogether(30, "allow")
		for name, spec := range specs {
			spec.Queue = "default"
			specs[name] = spec
		}
		apply(t, pool, "h1", specs)
		tickLedger := newTestLedger(t, pool, ledgerPool)
		offers := startAssigner(t, pool, tickLedger)
		at := secondsAhead(t, pool, seconds)
		if fired := <-fireInBackground(t, tickLedger, names, at); fired.err != nil {
			t.Fatal(fired.err)
		}
		if count(t, pool, preparedSQL) < 30 {
			return false
		}
		pids := map[uint32]bool{}
		for _, conn := range ledgerPool.AcquireAllIdle(t.Context()) {
			pids[conn.Conn().PgConn().PID()] = true
			conn.Release()
		}
		for jobs := 0; jobs < 30; {
			var offer *pgconn.Notification
			select {
			case offer = <-offers:
			case <-time.After(waitTimeout):
				t.Fatal("timed out waiting for offers")
			}
			if !pids[offer.PID] {
				t.Log("the assigner was busy")
				return false
			}
			message, err := wire.Unmarshal[wire.Offer](offer.Payload)
			if err != nil {
				t.Fatal(err)
			}
			jobs += len(message.Jobs["default"])
		}
		return true
	})
}

// startAssigner runs an Assigner for the term of a ledger, and a node that reports 5,000
// free slots. The offers of jobs are sent to the result.
func startAssigner(t *testing.T, pool *pgxpool.Pool, l *ledger) <-chan *pgconn.Notification {
	t.Helper()
	node := nodestore.Node{
		NodeID: "n1", Incarnation: "0000000000000001", Slots: 5000, Queues: map[string]int{"default": 5000}, Kinds: []string{"tidy"},
	}
	if err := nodestore.New(pool).Register(t.Context(), node, nodestore.Policy{}); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	if _, err := conn.Exec(t.Context(), "LISTEN "+pgx.Identifier{wire.OfferChannel("public", node.Incarnation)}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	assigner, err := assign.New(assign.Options{Pool: pool, Metrics: l.options.Metrics, Logger: l.logger, Schema: "public", Notifier: l.options.Notifier})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = assigner.Lead(ctx, l.fence) })
	l.options.Assigner = assigner
	if _, err := conn.Conn().WaitForNotification(t.Context()); err != nil { // the request of its credit
		t.Fatal(err)
	}
	credit := wire.Marshal(wire.Credit{
		NodeID: node.NodeID, Incarnation: node.Incarnation, Term: l.fence.Term, Seen: 1, Slots: 5000, Free: map[string]int{"default": 5000},
	})
	if _, err := pool.Exec(t.Context(), `SELECT pg_notify($1, $2)`, wire.Channel("public", wire.CreditChannel), credit); err != nil {
		t.Fatal(err)
	}
	offers := make(chan *pgconn.Notification, 10)
	running.Go(func() {
		for {
			note, err := conn.Conn().WaitForNotification(ctx)
			if err != nil {
				return
			}
			select {
			case offers <- note:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return offers
}
