package crons

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// earlySQL counts what can be seen before its time: the snapshot is older than the
// clock that it is compared with.
const earlySQL = `
SELECT (SELECT count(*) FROM forge_cron_ticks WHERE tick > clock_timestamp())
     + (SELECT count(*) FROM river_job WHERE (metadata ->> 'forge:tick')::timestamptz > clock_timestamp())`

// preparedSQL counts the jobs that were inserted before their tick.
const preparedSQL = `SELECT count(*) FROM river_job WHERE created_at < (metadata ->> 'forge:tick')::timestamptz`

// sleepingSQL counts the transactions that wait for their instant.
const sleepingSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`

func crowd(n int, overlap string) (names []string, specs map[string]cronstore.Spec) {
	specs = map[string]cronstore.Spec{}
	for i := range n {
		name := fmt.Sprintf("c%03d", i)
		names, specs[name] = append(names, name), everySecond(overlap)
	}
	return names, specs
}

// deskOn is the desk of a new term, which goes its own way to the database.
func deskOn(t *testing.T, pool, way *pgxpool.Pool) *ledger {
	t.Helper()
	firer := newFirer(t, way, newInserter(t, pool))
	return newLedger(firer.options, "public", mint(t, pool, "n1"), firer.meter, firer.options.Logger)
}

// outcome is what a fireBeside came to.
type outcome struct {
	fired
	err error
}

// fireBeside fires in the background and says how that ended.
func fireBeside(t *testing.T, desk *ledger, names []string, at time.Time) <-chan outcome {
	t.Helper()
	done := make(chan outcome, 1)
	go func() {
		fired, err := desk.Fire(t.Context(), names, at)
		done <- outcome{fired, err}
	}()
	return done
}

// secondsAhead is a whole second to come, by the database's clock.
func secondsAhead(t *testing.T, pool *pgxpool.Pool, n int) time.Time {
	t.Helper()
	now, err := cronstore.Now(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return now.Truncate(time.Second).Add(time.Duration(n) * time.Second)
}

// inTime makes an attempt for which the machine must be ready before an instant
// to come, again and farther ahead until it was.
func inTime(t *testing.T, attempt func(t *testing.T, seconds int) (ready bool)) {
	t.Helper()
	for seconds := 3; !attempt(t, seconds); seconds *= 2 {
		if seconds > 30 {
			t.Fatalf("nothing was ready within %d seconds", seconds)
		}
		t.Logf("not ready within %d seconds, trying again", seconds)
	}
}

// The ticks of the seconds that pass meanwhile come along.
func TestCrowdIsPreparedAndCommittedAtItsInstant(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, seconds int) bool {
		t.Helper()
		pool := pgtest.Pool(t)
		names, specs := crowd(60, "allow")
		apply(t, pool, "h1", specs)
		desk := deskOn(t, pool, pool)
		at := secondsAhead(t, pool, seconds)
		done := fireBeside(t, desk, names, at)
		for ended := false; !ended; {
			if early := count(t, pool, earlySQL); early > 0 {
				t.Fatalf("%d rows are seen before their time", early)
			}
			select {
			case crowd := <-done:
				if crowd.err != nil {
					t.Fatal(crowd.err)
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

// While a crowd waits for its instant another leader may take over: what was
// prepared does not count then.
func TestPreparedCrowdHoldsNoTakeOverUp(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, seconds int) bool {
		t.Helper()
		pool := pgtest.Pool(t)
		names, specs := crowd(30, "allow")
		apply(t, pool, "h1", specs)
		desk := deskOn(t, pool, pool)
		at := secondsAhead(t, pool, seconds)
		done := fireBeside(t, desk, names, at)
		await(t, pool, 1, `SELECT count(*) FROM (`+sleepingSQL+`) AS s (n) WHERE n > 0 OR clock_timestamp() >= '`+at.Format(time.RFC3339)+`'`)
		mint(t, pool, "n2")
		now, err := desk.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		crowd := <-done
		if !now.Before(at) {
			return false
		}
		if !errors.Is(crowd.err, leaderstore.ErrDeposed) {
			t.Errorf("the deposed leader's crowd: %v, want ErrDeposed", crowd.err)
		}
		if n := count(t, pool, ledgerCountSQL); n != 0 {
			t.Errorf("%d ticks of a deposed leader stand in the ledger", n)
		}
		return true
	})
}

// A leader that dies while its crowd waits keeps nobody from the crowd's rows: the
// server does not sleep on.
func TestDeadLeadersCrowdHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool, link := pgtest.Connect(t, url), pgtest.Proxy(t, url)
	names, specs := crowd(30, "allow")
	apply(t, pool, "h1", specs)
	desk := deskOn(t, pool, pgtest.Connect(t, link.URL()))
	fired := fireBeside(t, desk, names, time.Now().Add(10*patience))
	await(t, pool, 1, sleepingSQL)
	link.Cut()
	if (<-fired).err == nil {
		t.Error("fired without a connection")
	}
	await(t, pool, 1, `SELECT count(*) FROM pg_database WHERE datname = current_database() AND NOT EXISTS (
		SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`)
}

// A run that is active when its cron is looked at may have ended when the tick is
// due: that is what counts.
func TestRunThatEndsBeforeTheTickKeepsItFromNothing(t *testing.T) {
	t.Parallel()
	inTime(t, func(t *testing.T, seconds int) bool {
		t.Helper()
		pool := pgtest.Pool(t)
		names, specs := crowd(2, "skip")
		at := secondsAhead(t, pool, seconds)
		for name, spec := range specs { // at is their last tick
			spec.EndAt = at.Add(time.Second)
			specs[name] = spec
		}
		apply(t, pool, "h1", specs)
		desk := deskOn(t, pool, pool)
		rewind(t, pool, time.Second)
		if _, err := desk.Fire(t.Context(), names, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), `
			UPDATE river_job SET state = 'completed', finalized_at = now() WHERE metadata ->> 'forge:cron' = 'c001'`); err != nil {
			t.Fatal(err)
		}
		before := count(t, pool, ledgerCountSQL)
		done, err := desk.Fire(t.Context(), names, at)
		if err != nil {
			t.Fatal(err)
		}
		if !done.Now.Before(at) {
			return false
		}
		if now, err := desk.Now(t.Context()); err != nil || now.Before(at) {
			t.Errorf("committed at %s, before %s (%v)", now, at, err)
		}
		if next := done.Next["c000"]; !next.Equal(at) {
			t.Errorf("the busy cron is looked at again at %s, want %s", next, at)
		}
		if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c000'`); n >= before {
			t.Errorf("the busy cron has %d rows already", n)
		}
		finish(t, pool)
		if _, err := desk.Fire(t.Context(), names[:1], time.Time{}); err != nil {
			t.Fatal(err)
		}
		if n := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'c000' AND tick = $1 AND verdict = 'fired'`, at); n != 1 {
			t.Error("a run that had ended kept the tick from firing")
		}
		return true
	})
}

// What is committed later than its tick is recorded as late as that, and a tick that is
// due already is decided about at once: a busy cron is not put off again and again
// among others that keep falling due.
func TestBunchIsRecordedAsItIsCommitted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	desk := deskOn(t, pool, pool)
	half := time.Now().Add(-30 * time.Minute)
	hourly := everySecond("skip")
	hourly.Schedule = fmt.Sprintf("@every 1h/%ds", half.Unix()%3600)
	apply(t, pool, "h1", map[string]cronstore.Spec{"busy": hourly, "fresh": everySecond("allow")})
	rewind(t, pool, time.Hour)
	if _, err := manualOn(t, pool).Trigger(t.Context(), cronstore.Trigger{Cron: "busy", By: "test"}); err != nil {
		t.Fatal(err)
	}
	at := secondsAhead(t, pool, 2).Add(8 * time.Millisecond)
	if _, err := desk.Fire(t.Context(), []string{"busy", "fresh"}, at); err != nil {
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
		t.Error("a tick of a busy cron was put off though it was due")
	}
}
