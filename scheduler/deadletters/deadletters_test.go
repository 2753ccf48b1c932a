package deadletters_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/deadletters"
)

const (
	waitTimeout = time.Minute
	incarnation = "00000000000000cc"
)

type cluster struct {
	*testing.T

	pool    *pgxpool.Pool
	metrics *metrics.Metrics
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{t, pgtest.Pool(t), metrics.New("test")}
}

func (c *cluster) exec(sql string, args ...any) {
	c.Helper()
	if _, err := c.pool.Exec(c.Context(), sql, args...); err != nil {
		c.Fatal(err)
	}
}

// rows returns the first column of a query's result.
func (c *cluster) rows(sql string, args ...any) []string {
	c.Helper()
	found, err := c.pool.Query(c.Context(), sql, args...)
	if err != nil {
		c.Fatal(err)
	}
	list, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		c.Fatal(err)
	}
	return list
}

func (c *cluster) await(sql string, want ...string) {
	c.Helper()
	var got []string
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if got = c.rows(sql); slices.Equal(got, want) {
			return
		}
	}
	c.Fatalf("timed out (-want +got):\n%s", cmp.Diff(want, got))
}

// awaitCounted waits for counters, which change after the commit, and stops the leader
// before it compares them.
func (c *cluster) awaitCounted(stop func(), vec *prometheus.CounterVec, want map[string]float64) {
	c.Helper()
	deadline := time.Now().Add(waitTimeout)
	for kind, n := range want {
		for testutil.ToFloat64(vec.WithLabelValues(kind)) < n && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
	stop()
	for kind, n := range want {
		if got := testutil.ToFloat64(vec.WithLabelValues(kind)); got != n {
			c.Errorf("%v of %s are counted, want %v", got, kind, n)
		}
	}
}

// configure applies a configuration with the given jobs.
func (c *cluster) configure(hash, jobs string) {
	c.Helper()
	c.exec(`INSERT INTO forge_config (hash, applied_by, body) VALUES ($1, 'test', jsonb_build_object('jobs', $2::jsonb))`, hash, jobs)
}

func (c *cluster) makeLeader(term int64) leaderstore.Fence {
	c.Helper()
	c.exec(`INSERT INTO forge_leaders (role, node_id, incarnation, term) VALUES ('scheduler', 'leader', $1, $2)
		ON CONFLICT (role) DO UPDATE SET term = $2`, incarnation, term)
	return leaderstore.Fence{Role: "scheduler", Term: term, NodeID: "leader", Incarnation: incarnation}
}

func (c *cluster) newProcessor() *deadletters.Processor {
	return deadletters.New(deadletters.Options{Pool: c.pool, Metrics: c.metrics, Logger: slog.New(slog.DiscardHandler)})
}

// lead processes dead letters in a term until stop is called or the test ends.
func (c *cluster) lead(term int64) (stop func()) {
	c.Helper()
	fence := c.makeLeader(term)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.newProcessor().Lead(ctx, fence)
	}()
	stop = func() {
		cancel()
		<-done
	}
	c.Cleanup(stop)
	return stop
}

// insertDead adds a job that used up its three attempts some time ago.
func (c *cluster) insertDead(kind, failure string, age time.Duration, metadata string) {
	c.Helper()
	body, err := json.Marshal(map[string]any{"at": time.Now(), "attempt": 3, "error": failure})
	if err != nil {
		c.Fatal(err)
	}
	c.exec(`INSERT INTO river_job (kind, args, state, attempt, max_attempts, errors, metadata, scheduled_at, finalized_at)
		VALUES ($1, '{}', 'discarded', 3, 3, ARRAY['{"error": "an earlier one"}', $2::jsonb], $3, now() - interval '1 day', now() - make_interval(secs => $4))`,
		kind, body, metadata, age.Seconds())
}

func TestEachFinalFailureIsRecordedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.configure("h", `{"again": {"retry": {"second_round": "1h"}}}`)
	c.insertDead("mail", "smtp: host 7 is down", 0, "{}")
	c.insertDead("mail", "smtp: host 8 is down", 0, `{"forge:cron": "kept"}`)
	c.insertDead("again", "exit status 1", time.Minute, "{}")
	c.insertDead("again", "exit status 1", time.Minute, `{"forge:second_round": {}}`)
	c.insertDead("mail", "broken metadata", 0, "[]")
	c.exec(`INSERT INTO river_job (kind, args, state, attempt, max_attempts, finalized_at, scheduled_at) VALUES
		('by hand', '{}', 'discarded', 1, 3, now(), now()), ('cancelled', '{}', 'cancelled', 3, 3, now(), now()), ('alive', '{}', 'running', 3, 3, NULL, now())`)
	stop := c.lead(1)
	const marks = `SELECT format('%s %s %s %s', kind, metadata #>> '{forge:dead,attempt}', metadata #>> '{forge:dead,group}', metadata ->> 'forge:cron')
		FROM river_job WHERE metadata ? 'forge:dead' ORDER BY id`
	deadLetters, again := jobstore.Fingerprint("mail", "smtp: host 7 is down"), jobstore.Fingerprint("again", "exit status 1")
	first := []string{"mail 3 " + deadLetters + " ", "mail 3 " + deadLetters + " kept", "again 3 " + again + " ", "again 3 " + again + " "}
	c.await(marks, first...)
	c.await(`SELECT format('%s %s', id, extract(epoch FROM (metadata #>> '{forge:dead,second_round}')::timestamptz - finalized_at)::int)
		FROM river_job WHERE metadata -> 'forge:dead' ? 'second_round'`, "3 3600")
	// The first job is retried by hand and fails again with another error.
	c.exec(`UPDATE river_job SET attempt = 4, max_attempts = 4, errors = errors || '{"error": "smtp: refused"}'::jsonb WHERE id = 1`)
	first[0] = "mail 4 " + jobstore.Fingerprint("mail", "smtp: refused") + " "
	c.await(marks, first...)
	c.awaitCounted(stop, c.metrics.JobDeadLetters, map[string]float64{"mail": 3, "again": 2})
}

// All dead letters are recorded and get their second round, even if there are many and
// the database fails on large batches.
func TestMoreThanOneBatchIsProcessed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.configure("h", `{"k": {"retry": {"second_round": "1s"}}}`)
	c.exec(`INSERT INTO river_job (kind, args, state, attempt, max_attempts, finalized_at)
		SELECT 'k', '{}', 'discarded', 1, 1, now() - interval '1 minute' FROM generate_series(1, 1201)`)
	pgtest.RefuseLargeUpdates(t, c.pool, "river_job", 200)
	defer c.lead(1)()
	c.await(`SELECT state || ' ' || count(*) FROM river_job GROUP BY state`, "available 1201")
	c.await(`SELECT sum((data -> 'jobs')::int)::text FROM forge_events WHERE type = 'second_rounds_given'`, "1201")
}

func TestSecondRoundIsGivenOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.configure("h", `{"k": {"retry": {"second_round": "1m", "max_attempts": 5}}}`)
	c.insertDead("k", "exit status 1", 2*time.Minute, `{"forge:cron": "kept", "cancel_attempted_at": "x"}`)
	c.insertDead("k", "exit status 1", 0, "{}")
	stop := c.lead(7)
	const states = `SELECT format('%s %s/%s %s', state, attempt, max_attempts, finalized_at IS NULL) FROM river_job ORDER BY id`
	c.await(states, "available 3/8 t", "discarded 3/3 f")
	c.awaitCounted(stop, c.metrics.JobSecondRounds, map[string]float64{"k": 1})
	job, err := jobstore.New(c.pool).Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if round := job.SecondRound; round == nil || round.Attempt != 3 || round.Term != 7 || round.NodeID != "leader" || time.Since(round.At) > time.Hour {
		t.Errorf("the job's second round is %+v", round)
	}
	c.await(`SELECT string_agg(key, ' ' ORDER BY key) FROM river_job, jsonb_object_keys(metadata) AS key WHERE id = 1`, "forge:cron forge:second_round")
	c.await(`SELECT format('%s %s %s %s', node_id, role, term, data) FROM forge_events WHERE type = 'second_rounds_given'`,
		`leader scheduler 7 {"ids": [1], "jobs": 1, "kinds": {"k": 1}}`)
	c.exec(`UPDATE river_job SET state = 'discarded', attempt = 8, finalized_at = now() - interval '1 day' WHERE id = 1`)
	c.exec(`UPDATE river_job SET metadata = metadata - 'forge:dead', finalized_at = now() - interval '1 day' WHERE id = 2`)
	defer c.lead(8)()
	c.await(states, "discarded 8/8 f", "available 3/8 t") // the second job shows that the leader has run
	c.await(`SELECT id::text FROM river_job WHERE metadata #>> '{forge:dead,attempt}' = '8' AND NOT metadata -> 'forge:dead' ? 'second_round'`, "1")
}

// A due second round that is not allowed is removed for good.
func TestSecondRoundIsForgoneWhereNotAllowed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.configure("h", `{"k": {"retry": {"second_round": "1s"}}, "gone": {}}`)
	for what, change := range map[string]string{
		"not configured":  `kind = 'gone'`,
		"another attempt": `attempt = 4, max_attempts = 4, metadata = metadata || '{"forge:second_round": {}}'`,
		"attempts left":   `max_attempts = 9`,
		"had its round":   `metadata = metadata || '{"forge:second_round": {}}'`,
		"nonsense":        `metadata = jsonb_set(metadata || '{"forge:second_round": 1}', '{forge:dead,second_round}', '"0"')`,
		"unique":          `unique_key = 'k', metadata = metadata || '{"forge:unique_states": "11110101"}'`,
	} {
		c.insertDead("k", what, time.Minute, `{"forge:dead": {"attempt": 3, "group": "d", "second_round": "2026-01-01T00:00:00.000000Z"}}`)
		if what == "unique" {
			c.exec(`INSERT INTO river_job (kind, args, state, max_attempts, unique_key, unique_states) VALUES ('rival', '{}', 'available', 3, 'k', B'11110101')`)
		}
		c.exec(`UPDATE river_job SET `+change+` WHERE errors[2] ->> 'error' = $1`, what)
	}
	defer c.lead(1)()
	c.await(`SELECT coalesce(string_agg(errors[2] ->> 'error', ', '), 'none') FROM river_job WHERE metadata #>> '{forge:dead,second_round}' IS NOT NULL`, "none")
	c.await(`SELECT state || ' ' || count(*) FROM river_job WHERE kind <> 'rival' GROUP BY state`, "discarded 6")
	if left := c.rows(`SELECT type FROM forge_events`); len(left) != 0 {
		t.Errorf("the event log has %v", left)
	}
}

// Two jobs with one unique key cannot both be available: only the first gets its round,
// and the rest of the batch is not affected.
func TestOneSecondRoundPerUniqueKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.configure("h", `{"k": {"retry": {"second_round": "1s"}}}`)
	for i := range 3 {
		c.insertDead("k", fmt.Sprint("n", i), time.Duration(10-i)*time.Minute, "{}")
	}
	c.exec(`UPDATE river_job SET unique_key = 'k', metadata = metadata || '{"forge:unique_states": "11110101"}' WHERE id < 3`)
	defer c.lead(1)()
	c.await(`SELECT id || ' ' || state FROM river_job ORDER BY id`, "1 available", "2 discarded", "3 available")
}

// A deposed leader changes nothing, and the next leader gives the round once.
func TestDeposedLeaderGrantsNoSecondRound(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.configure("h", `{"k": {"retry": {"second_round": "1s"}}}`)
	c.insertDead("k", "exit status 1", time.Minute, "{}")
	old := c.makeLeader(1)
	old.Refused = c.metrics.LeaderFencedWrites.WithLabelValues(old.Role, old.NodeID)
	c.makeLeader(2)
	if err := c.newProcessor().Lead(t.Context(), old); !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("Lead of an old term = %v, want ErrDeposed", err)
	}
	if got := testutil.ToFloat64(c.metrics.LeaderFencedWrites.WithLabelValues("scheduler", "leader")); got != 1 {
		t.Errorf("%v fenced writes are counted, want 1", got)
	}
	c.await(`SELECT state || metadata::text FROM river_job`, "discarded{}")
	defer c.lead(3)()
	c.await(`SELECT concat(state, metadata #>> '{forge:second_round,term}') FROM river_job`, "available3")
}

// A configuration that changes during a term takes effect at once.
func TestConfigurationInForceDecidesSecondRounds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.configure("one", `{"k": {"retry": {"second_round": "1h"}}}`)
	defer c.lead(1)()
	c.insertDead("k", "waits an hour", time.Minute, "{}")
	c.await(`SELECT id::text FROM river_job WHERE metadata -> 'forge:dead' ? 'second_round'`, "1")
	c.configure("two", `{"k": {"retry": {"second_round": "1s"}}}`)
	c.insertDead("k", "waits a second", time.Minute, "{}")
	c.await(`SELECT id || ' ' || state FROM river_job ORDER BY id`, "1 discarded", "2 available")
	c.configure("three", `{"k": {}}`)
	c.insertDead("k", "waits no more", time.Minute, "{}")
	c.await(`SELECT id::text FROM river_job WHERE metadata ? 'forge:dead' AND NOT metadata -> 'forge:dead' ? 'second_round'`, "3")
}

// The check for dead letters piggybacks on another batch only while Lead runs.
func TestPiggybackedLookFindsDeadLetters(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	processor := c.newProcessor()
	piggyback := func() int {
		batch := &pgx.Batch{}
		processor.Piggyback(batch)
		if err := c.pool.SendBatch(t.Context(), batch).Close(); err != nil {
			t.Fatal(err)
		}
		return batch.Len()
	}
	if got := piggyback(); got != 0 {
		t.Errorf("a processor that does not lead checks %d times", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	fence := c.makeLeader(1)
	go func() { done <- processor.Lead(ctx, fence) }()
	c.insertDead("k", "boom", time.Minute, "{}")
	for deadline := time.Now().Add(waitTimeout); piggyback() != 1; {
		if time.Now().After(deadline) {
			t.Fatal("a processor that leads does not check")
		}
	}
	c.await(`SELECT kind FROM river_job WHERE metadata ? 'forge:dead'`, "k")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
