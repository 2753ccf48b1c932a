package compactor_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	hour        = time.Hour
	waitTimeout = time.Minute
)

// allOfAnHour keeps everything for an hour: a row of 61 minutes is expired and one
// of 59 is not.
var allOfAnHour = compactor.Retention{
	Completed: hour, Cancelled: hour, Discarded: hour, Logs: hour, CronTicks: hour, Events: hour, History: hour,
	Metrics: hour, Idle: hour, Audit: hour,
	Rollups: map[aggregator.Step]time.Duration{aggregator.Minute: hour, aggregator.FiveMinutes: 2 * hour, aggregator.Hour: 3 * hour},
}

// packs lists rows of packed output; the packs contain names in these tests.
const packs = `SELECT convert_from(pack, 'UTF8') FROM forge_job_log_packs ORDER BY pack`

// Each case has expired and unexpired rows; want is what a full pass leaves.
var retentionCases = map[string]struct {
	setup, left string
	want        []string
}{
	"jobs by state and end": {
		setup: `INSERT INTO river_job (kind, args, max_attempts, state, scheduled_at, finalized_at) VALUES
			('old completed', '{}', 1, 'completed', now(), now() - interval '61 minutes'),
			('old cancelled', '{}', 1, 'cancelled', now(), now() - interval '61 minutes'),
			('old discarded', '{}', 1, 'discarded', now(), now() - interval '61 minutes'),
			('new completed', '{}', 1, 'completed', now() - interval '1 year', now() - interval '59 minutes'),
			('new cancelled', '{}', 1, 'cancelled', now() - interval '1 year', now() - interval '59 minutes'),
			('new discarded', '{}', 1, 'discarded', now() - interval '1 year', now() - interval '59 minutes'),
			('available', '{}', 1, 'available', now() - interval '1 year', NULL),
			('running', '{}', 1, 'running', now() - interval '1 year', NULL),
			('retryable', '{}', 1, 'retryable', now() - interval '1 year', NULL),
			('scheduled', '{}', 1, 'scheduled', now() - interval '1 year', NULL)`,
		left: `SELECT kind FROM river_job ORDER BY kind`,
		want: []string{
			"available", "new cancelled", "new completed", "new discarded", "retryable", "running", "scheduled",
		},
	},
	"more jobs than a batch": {
		setup: `INSERT INTO river_job (kind, args, max_attempts, state, finalized_at)
			SELECT 'k' || i, '{}', 1, 'completed', now() - i * interval '10 minutes' FROM generate_series(1, 30) i`,
		left: `SELECT kind FROM river_job ORDER BY kind`,
		want: []string{"k1", "k2", "k3", "k4", "k5"},
	},
	"configurations from their end": {
		setup: `INSERT INTO forge_config (hash, applied_by, body, applied_at)
			SELECT hash, 'n1', '{}', now() - ago FROM (VALUES
				('older', interval '3 hours'), ('old', '2 hours'), ('over for half an hour', '90 minutes'), ('in force', '30 minutes')
			) AS c (hash, ago)`,
		left: `SELECT hash FROM forge_config ORDER BY hash`,
		want: []string{"in force", "over for half an hour"},
	},
	"output goes with its job": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (kind, args, max_attempts, state, finalized_at) VALUES
					('old', '{}', 1, 'completed', now() - interval '61 minutes'),
					('new', '{}', 1, 'completed', now() - interval '59 minutes')
				RETURNING id, kind)
			INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk)
			SELECT id, 1, seq, 'stdout', kind || seq FROM jobs, generate_series(1, 5) seq`,
		left: `SELECT chunk FROM forge_job_logs ORDER BY chunk`,
		want: []string{"new1", "new2", "new3", "new4", "new5"},
	},
	"output by its own age": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (kind, args, max_attempts) VALUES ('k', '{}', 1) RETURNING id)
			INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk, at)
			SELECT id, 1, seq, 'stdout', 'c' || seq, now() - seq * interval '13 minutes' FROM jobs, generate_series(1, 9) seq`,
		left: `SELECT chunk FROM forge_job_logs ORDER BY chunk`,
		want: []string{"c1", "c2", "c3", "c4"},
	},
	"output by a retention of its own": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (kind, args, max_attempts) VALUES ('k', '{}', 1) RETURNING id)
			INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk, at, keep_until)
			SELECT id, 1, seq, 'stdout', 'c' || seq, now() - interval '100 days', now() + (seq - 5) * interval '1 minute'
			FROM jobs, generate_series(1, 9) seq`,
		left: `SELECT chunk FROM forge_job_logs ORDER BY chunk`,
		want: []string{"c6", "c7", "c8", "c9"},
	},
	"packed output goes with its job": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (kind, args, max_attempts, state, finalized_at) VALUES
					('old', '{}', 1, 'completed', now() - interval '61 minutes'),
					('new', '{}', 1, 'completed', now() - interval '59 minutes')
				RETURNING id, kind)
			INSERT INTO forge_job_log_packs (job_id, attempt, first_seq, last_seq, chunks, text_bytes, at, pack)
			SELECT id, 1, seq, seq, 1, 1, now(), convert_to(kind || seq, 'UTF8') FROM jobs, generate_series(1, 3) seq`,
		left: packs,
		want: []string{"new1", "new2", "new3"},
	},
	"packed output by its own age": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (kind, args, max_attempts) VALUES ('k', '{}', 1) RETURNING id)
			INSERT INTO forge_job_log_packs (job_id, attempt, first_seq, last_seq, chunks, text_bytes, at, pack)
			SELECT id, 1, seq, seq, 1, 1, now() - seq * interval '13 minutes', convert_to('p' || seq, 'UTF8') FROM jobs, generate_series(1, 9) seq`,
		left: packs,
		want: []string{"p1", "p2", "p3", "p4"},
	},
	"packed output by a retention of its own": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (kind, args, max_attempts) VALUES ('k', '{}', 1) RETURNING id)
			INSERT INTO forge_job_log_packs (job_id, attempt, first_seq, last_seq, chunks, text_bytes, at, keep_until, pack)
			SELECT id, 1, seq, seq, 1, 1, now() - interval '100 days', now() + (seq - 5) * interval '1 minute', convert_to('p' || seq, 'UTF8')
			FROM jobs, generate_series(1, 9) seq`,
		left: packs,
		want: []string{"p6", "p7", "p8", "p9"},
	},
	"packed output of jobs that are gone": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (id, kind, args, max_attempts)
				SELECT 2 * i, 'k', '{}', 1 FROM generate_series(1, 4) i)
			INSERT INTO forge_job_log_packs (job_id, attempt, first_seq, last_seq, chunks, text_bytes, at, pack)
			SELECT i, 1, 1, 1, 1, 1, now(), convert_to('p' || i, 'UTF8') FROM generate_series(1, 9) i`,
		left: packs,
		want: []string{"p2", "p4", "p6", "p8"},
	},
	"output of jobs that are gone": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (id, kind, args, max_attempts)
				SELECT 2 * i, 'k', '{}', 1 FROM generate_series(1, 4) i)
			INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk)
			SELECT i, 1, seq, 'stdout', i || '/' || seq FROM generate_series(1, 9) i, generate_series(1, 2) seq`,
		left: `SELECT chunk FROM forge_job_logs ORDER BY chunk`,
		want: []string{"2/1", "2/2", "4/1", "4/2", "6/1", "6/2", "8/1", "8/2"},
	},
	"ticks but the newest of a cron": {
		setup: `INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, recorded_at, last_tick) VALUES
			('busy', now() - interval '3 hours', 'fired', 1, 'a', now() - interval '3 hours', NULL),
			('busy', now() - interval '61 minutes', 'fired', 1, 'a', now() - interval '61 minutes', NULL),
			('busy', now() - interval '59 minutes', 'fired', 1, 'a', now() - interval '59 minutes', NULL),
			('yearly', now() - interval '1000 days', 'fired', 1, 'a', now() - interval '1000 days', NULL),
			('yearly', now() - interval '700 days', 'fired', 1, 'a', now() - interval '700 days', NULL),
			('waiting', now() - interval '3 hours', 'queued', 1, 'a', now() - interval '3 hours', NULL),
			('waiting', now() - interval '2 hours', 'fired', 1, 'a', now() - interval '2 hours', NULL),
			('outage', now() - interval '3 hours', 'skipped_window', 1, 'a', now() - interval '2 hours', now() - interval '59 minutes'),
			('outage', now(), 'fired', 1, 'a', now(), NULL),
			('backfill', now() - interval '1000 days', 'backfilled', 1, 'a', now() - interval '1 minute', NULL),
			('backfill', now() - interval '1 minute', 'fired', 1, 'a', now(), NULL)`,
		left: `SELECT cron || ' ' || date_trunc('minute', now() - tick + interval '1 second') FROM forge_cron_ticks ORDER BY cron, tick DESC`,
		want: []string{
			"backfill 00:01:00", "backfill 1000 days", "busy 00:59:00", "outage 00:00:00", "outage 03:00:00",
			"waiting 02:00:00", "waiting 03:00:00", "yearly 700 days",
		},
	},
	"notifications by their end": {
		setup: `INSERT INTO forge_notifications (cron, tick, target, state, created_at, done_at) VALUES
			('c', now(), 'old', 'delivered', now(), now() - interval '61 minutes'),
			('c', now(), 'new', 'failed', now() - interval '1 year', now() - interval '59 minutes'),
			('c', now(), 'pending', 'pending', now() - interval '1 year', NULL)`,
		left: `SELECT target FROM forge_notifications ORDER BY target`,
		want: []string{"new", "pending"},
	},
	"alerts by their end": {
		setup: `INSERT INTO forge_alerts (alert, labels, state, value, active_at, resolved_at, term) VALUES
			('old', '{}', 'resolved', 1, now() - interval '2 hours', now() - interval '61 minutes', 1),
			('new', '{}', 'resolved', 1, now() - interval '2 hours', now() - interval '59 minutes', 1),
			('open', '{}', 'firing', 1, now() - interval '2 hours', NULL, 1)`,
		left: `SELECT alert FROM forge_alerts ORDER BY alert`,
		want: []string{"new", "open"},
	},
	"events": {
		setup: `INSERT INTO forge_events (type, at)
			SELECT 'e' || i, now() - i * interval '13 minutes' FROM generate_series(1, 9) i`,
		left: `SELECT type FROM forge_events ORDER BY type`,
		want: []string{"e1", "e2", "e3", "e4"},
	},
	"tenures but the newest of a role": {
		setup: `INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at) VALUES
			('idle', 1, 'a', 'i', now() - interval '5 hours', now() - interval '4 hours'),
			('idle', 2, 'a', 'i', now() - interval '4 hours', now() - interval '3 hours'),
			('long', 1, 'a', 'i', now() - interval '5 hours', now() - interval '59 minutes'),
			('long', 2, 'a', 'i', now() - interval '59 minutes', NULL),
			('open', 1, 'a', 'i', now() - interval '5 hours', NULL),
			('open', 2, 'a', 'i', now() - interval '4 hours', NULL),
			('open', 3, 'a', 'i', now() - interval '59 minutes', NULL)`,
		left: `SELECT role || ' ' || term FROM forge_leader_history ORDER BY role, term`,
		want: []string{"idle 2", "long 1", "long 2", "open 2", "open 3"},
	},
	"cluster metrics": {
		setup: `INSERT INTO forge_metrics_cluster (metric, labels, at, value, term)
			SELECT 'm' || i, '{"a": "b"}', now() - i * interval '13 minutes', 1, 1 FROM generate_series(1, 9) i`,
		left: `SELECT metric FROM forge_metrics_cluster ORDER BY metric`,
		want: []string{"m1", "m2", "m3", "m4"},
	},
	"rollups by their windows": {
		setup: `INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last)
			SELECT step, 'm' || i, '{}', now() - i * interval '25 minutes', 60, 1, 1
			FROM generate_series(1, 9) i, unnest('{60,300,3600}'::int[]) step`,
		left: `SELECT step || ' ' || metric FROM forge_metrics_rollups ORDER BY step, metric`,
		want: []string{
			"60 m1", "60 m2", "300 m1", "300 m2", "300 m3", "300 m4",
			"3600 m1", "3600 m2", "3600 m3", "3600 m4", "3600 m5", "3600 m6", "3600 m7",
		},
	},
	"queues": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (kind, args, max_attempts, queue) VALUES ('k', '{}', 1, 'old with a job')),
			nodes AS (
				INSERT INTO forge_nodes (node_id, incarnation, state, queues) VALUES
				('lives', '00000000000000a1', 'active', '{"old with a node": 1}'), ('gone', '00000000000000a2', 'left', '{"old": 1}'))
			INSERT INTO river_queue (name, updated_at, paused_at) VALUES
			('old', now() - interval '61 minutes', NULL), ('new', now() - interval '59 minutes', NULL),
			('old and paused', now() - interval '2 hours', now()), ('old with a job', now() - interval '2 hours', NULL),
			('old with a node', now() - interval '2 hours', NULL)`,
		left: `SELECT name FROM river_queue ORDER BY name`,
		want: []string{"new", "old and paused", "old with a job", "old with a node"},
	},
	"nodes": {
		setup: `WITH jobs AS (
				INSERT INTO river_job (kind, args, max_attempts, state, attempted_by)
				VALUES ('k', '{}', 9, 'running', '{other-00000000000000a1,orphan-00000000000000a1}'))
			INSERT INTO forge_nodes (node_id, incarnation, state, last_heartbeat_at) VALUES
			('left', '00000000000000a1', 'left', now() - interval '61 minutes'),
			('dead', '00000000000000a1', 'dead', now() - interval '61 minutes'),
			('other', '00000000000000a1', 'dead', now() - interval '61 minutes'),
			('orphan', '00000000000000a1', 'dead', now() - interval '61 minutes'),
			('left now', '00000000000000a1', 'left', now() - interval '59 minutes'),
			('silent', '00000000000000a1', 'active', now() - interval '2 hours'),
			('drains', '00000000000000a1', 'draining', now() - interval '2 hours')`,
		left: `SELECT node_id FROM forge_nodes ORDER BY node_id`,
		want: []string{"drains", "left now", "orphan", "silent"},
	},
}

func TestRetention(t *testing.T) {
	t.Parallel()
	for name, test := range retentionCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.exec(test.setup)
			stop := c.lead(allOfAnHour, 1)
			c.await(test.left, test.want)
			stop()
			stop = c.lead(allOfAnHour, 2) // no pass deletes more
			c.awaitPass()
			stop()
			if diff := cmp.Diff(test.want, c.rows(test.left)); diff != "" {
				t.Errorf("a later pass deleted more (-want +got):\n%s", diff)
			}
		})
	}
}

func TestZeroRetentionKeepsForever(t *testing.T) {
	t.Parallel()
	for name, test := range retentionCases {
		switch name {
		case "output of jobs that are gone", "output by a retention of its own", "packed output of jobs that are gone",
			"packed output by a retention of its own", "cluster metrics", "rollups by their windows", "queues", "nodes":
			continue // no setting turns these off
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.exec(test.setup)
			before := c.rows(test.left)
			stop := c.lead(compactor.Retention{}, 1)
			c.awaitPass()
			stop()
			if diff := cmp.Diff(before, c.rows(test.left)); diff != "" {
				t.Errorf("deleted without a retention (-before +after):\n%s", diff)
			}
		})
	}
}

// A pass that ends after any batch loses nothing and keeps its progress; the next
// leader completes it.
func TestInterruptedPassLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`INSERT INTO forge_events (type, at)
		SELECT 'old', now() - interval '2 hours' FROM generate_series(1, 400)
		UNION ALL SELECT 'new', now() FROM generate_series(1, 10)`)
	c.pause = time.Hour // after the first batch
	stop := c.lead(allOfAnHour, 1)
	c.await(`SELECT 'begun' FROM forge_events WHERE type = 'old' HAVING count(*) < 400`, []string{"begun"})
	stop()
	left := c.count(`SELECT count(*) FROM forge_events WHERE type = 'old'`)
	if left != 400-batch {
		t.Errorf("%d old events are left, want all but a whole batch of %d", left, batch)
	}
	c.pause = time.Millisecond
	defer c.lead(allOfAnHour, 2)()
	c.await(`SELECT count(*) || ' ' || type FROM forge_events GROUP BY type`, []string{"10 new"})
}

func TestDeposedDeletesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`INSERT INTO forge_events (type, at) VALUES ('old', now() - interval '2 hours')`)
	c.acquire(2)
	old := fence(1)
	old.Refused = c.metrics.LeaderFencedWrites.WithLabelValues(old.Role, old.NodeID)
	if err := c.compactor(allOfAnHour).Lead(t.Context(), old); !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("Lead of an old term = %v, want ErrDeposed", err)
	}
	if got := testutil.ToFloat64(c.metrics.LeaderFencedWrites.WithLabelValues("log_compactor", "leader")); got != 1 {
		t.Errorf("%v fenced writes are counted, want 1", got)
	}
	if c.count(`SELECT count(*) FROM forge_events`) != 1 {
		t.Error("a deposed leader deleted")
	}
}

func TestDeposedDuringPass(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`INSERT INTO forge_events (type, at) SELECT 'old', now() - interval '2 hours' FROM generate_series(1, 400)`)
	c.pause = 20 * time.Millisecond
	c.acquire(1)
	done := make(chan error, 1)
	go func() { done <- c.compactor(allOfAnHour).Lead(t.Context(), fence(1)) }()
	c.await(`SELECT 'begun' FROM forge_events HAVING count(*) < 400`, []string{"begun"})
	c.acquire(2)
	left := c.count(`SELECT count(*) FROM forge_events`) // from here on nothing of term 1 can commit
	select {
	case err := <-done:
		if !errors.Is(err, leaderstore.ErrDeposed) {
			t.Errorf("Lead = %v, want ErrDeposed", err)
		}
	case <-time.After(waitTimeout):
		t.Fatal("Lead goes on after its term")
	}
	if got := c.count(`SELECT count(*) FROM forge_events`); got != left {
		t.Errorf("%d events are left of the %d at the end of the term", got, left)
	}
}

// A job that is retried while it is due for deletion is kept.
func TestRetriedJobIsKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`INSERT INTO river_job (kind, args, max_attempts, state, finalized_at) VALUES
		('retried', '{}', 1, 'discarded', now() - interval '2 hours'), ('old', '{}', 1, 'discarded', now() - interval '2 hours')`)
	retry, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = retry.Rollback(context.Background()) }()
	if _, err := retry.Exec(t.Context(),
		`UPDATE river_job SET state = 'available', finalized_at = NULL, max_attempts = 2 WHERE kind = 'retried'`); err != nil {
		t.Fatal(err)
	}
	stop := c.lead(allOfAnHour, 1)
	c.awaitPass()
	if err := retry.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.awaitPass()
	stop()
	if diff := cmp.Diff([]string{"retried"}, c.rows(`SELECT kind FROM river_job`)); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
}

// A table whose sweep fails does not stop the other sweeps.
func TestFailedSweepDoesNotEndPass(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`ALTER TABLE river_job RENAME TO away`)
	c.exec(`INSERT INTO forge_events (type, at) VALUES ('old', now() - interval '2 hours')`)
	defer c.lead(allOfAnHour, 1)()
	c.await(`SELECT type FROM forge_events`, nil)
}

// cluster is a database with a compactor's leader.
type cluster struct {
	t       *testing.T
	pool    *pgxpool.Pool
	metrics *metrics.Metrics
	pause   time.Duration
	quiet   time.Duration // long if nothing is to be merged
	// leastIndex is 0 if no index grows.
	leastIndex int64
	// largePartition is 0 if there are few rows.
	largePartition int64
}

const batch = 4

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{t: t, pool: pgtest.Pool(t), metrics: metrics.New("v0"), pause: time.Millisecond, quiet: 10_000 * hour}
}

func fence(term int64) leaderstore.Fence {
	return leaderstore.Fence{Role: "log_compactor", Term: term, NodeID: "leader", Incarnation: "00000000000000ff"}
}

func (c *cluster) compactor(retention compactor.Retention) *compactor.Compactor {
	return compactor.New(c.pool, compactor.Options{
		Retention: func() compactor.Retention { return retention }, Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)), Metrics: c.metrics,
		Interval: 10 * time.Millisecond, Delay: time.Millisecond, Batch: batch, Pause: c.pause, Quiet: c.quiet,
		LeastIndex: c.leastIndex, LargePartition: c.largePartition,
	})
}

func (c *cluster) acquire(term int64) {
	c.t.Helper()
	c.exec(`INSERT INTO forge_leaders (role, incarnation, term) VALUES ('log_compactor', '00000000000000ff', $1)
		ON CONFLICT (role) DO UPDATE SET term = excluded.term`, term)
}

// lead starts a leader; the returned function ends it and waits.
func (c *cluster) lead(retention compactor.Retention, term int64) (stop func()) {
	c.t.Helper()
	c.acquire(term)
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.compactor(retention).Lead(ctx, fence(term)); err != nil {
			c.t.Errorf("Lead = %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	c.t.Cleanup(stop)
	return stop
}

// awaitPass waits for a complete pass: the second that ends, because the first may
// have started earlier. The last sweep of a pass deletes a node that awaitPass
// inserts for this purpose.
func (c *cluster) awaitPass() {
	c.t.Helper()
	for range 2 {
		c.exec(`INSERT INTO forge_nodes (node_id, incarnation, state, last_heartbeat_at)
			VALUES ('canary', '00000000000000ca', 'left', now() - interval '2 days')`)
		c.await(`SELECT node_id FROM forge_nodes WHERE node_id = 'canary'`, nil)
	}
}

func (c *cluster) exec(sql string, args ...any) {
	c.t.Helper()
	if _, err := c.pool.Exec(context.Background(), sql, args...); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

func (c *cluster) count(sql string) int {
	c.t.Helper()
	var n int
	if err := c.pool.QueryRow(c.t.Context(), sql).Scan(&n); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (c *cluster) rows(sql string) []string {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), sql)
	if err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// await waits until the query returns want.
func (c *cluster) await(sql string, want []string) {
	c.t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for {
		diff := cmp.Diff(append([]string{}, want...), append([]string{}, c.rows(sql)...))
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s (-want +got):\n%s", sql, diff)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
