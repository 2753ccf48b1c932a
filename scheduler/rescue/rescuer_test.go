package rescue_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/rescue"
)

const (
	waitTimeout = time.Minute
	incA        = "00000000000000aa"
	incB        = "00000000000000bb"
	incC        = "00000000000000cc"
)

type cluster struct {
	pool    *pgxpool.Pool
	metrics *metrics.Metrics
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{pool: pgtest.Pool(t), metrics: metrics.New("test")}
}

func (c *cluster) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := c.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) makeLeader(t *testing.T, term int64) leaderstore.Fence {
	t.Helper()
	c.exec(t, `INSERT INTO forge_leaders (role, node_id, incarnation, term) VALUES ('scheduler', 'leader', $1, $2)
		ON CONFLICT (role) DO UPDATE SET term = $2`, incC, term)
	return leaderstore.Fence{Role: "scheduler", Term: term, NodeID: "leader", Incarnation: incC}
}

func (c *cluster) lead(t *testing.T, fence leaderstore.Fence) {
	t.Helper()
	c.leadWithPolicy(t, fence, nodestore.Policy{})
}

func (c *cluster) leadWithPolicy(t *testing.T, fence leaderstore.Fence, policy nodestore.Policy) {
	t.Helper()
	rescuer := rescue.New(rescue.Options{Pool: c.pool, Metrics: c.metrics, Logger: slog.New(slog.DiscardHandler), Policy: policy})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rescuer.Lead(ctx, fence)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// join registers a node that lives until crash is called or the test ends. It holds its
// session lock until then. Its last heartbeat is in the future, so that a slow machine
// does not make it late.
func (c *cluster) join(t *testing.T, nodeID, incarnation string) (crash func()) {
	t.Helper()
	conn := c.session(t, "forge:"+incarnation+":"+nodeID)
	class, object := nodestore.SessionLock(incarnation)
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock($1, $2)", class, object); err != nil {
		t.Fatal(err)
	}
	if err := nodestore.New(c.pool).Register(t.Context(), nodestore.Node{NodeID: nodeID, Incarnation: incarnation}, nodestore.Policy{}); err != nil {
		t.Fatal(err)
	}
	const heartbeatSQL = `UPDATE forge_nodes SET started_at = now() - interval '1 h', last_heartbeat_at = now() + $2 WHERE incarnation = $1`
	c.exec(t, heartbeatSQL, incarnation, time.Hour)
	return func() {
		t.Helper()
		c.exec(t, heartbeatSQL, incarnation, time.Duration(0))
		_ = conn.Close(t.Context())
	}
}

// session opens a connection with an application name.
func (c *cluster) session(t *testing.T, name string) *pgx.Conn {
	t.Helper()
	config := c.pool.Config().ConnConfig
	config.RuntimeParams["application_name"] = name
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// running inserts a running job of clientID with three attempts, and returns its id.
func (c *cluster) running(t *testing.T, clientID string, attempt int, metadata string) (id int64) {
	t.Helper()
	err := c.pool.QueryRow(t.Context(), `INSERT INTO river_job
		(kind, args, state, attempt, max_attempts, attempted_at, attempted_by, metadata, scheduled_at)
		VALUES ('k', '{}', 'running', $2, 3, now() - interval '1 hour', ARRAY['before', $1], $3, now() - interval '1 hour')
		RETURNING id`, clientID, attempt, metadata).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (c *cluster) state(t *testing.T, id int64) (state string) {
	t.Helper()
	if err := c.pool.QueryRow(t.Context(), "SELECT state FROM river_job WHERE id = $1", id).Scan(&state); err != nil {
		t.Fatal(err)
	}
	return state
}

func (c *cluster) waitFor(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); !met(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func TestDueJobsBecomeAvailableAtTheirTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	listener := c.session(t, "listener")
	if _, err := listener.Exec(t.Context(), `LISTEN "public.river_insert"`); err != nil {
		t.Fatal(err)
	}
	c.exec(t, `INSERT INTO river_job (kind, args, state, queue, scheduled_at) VALUES
		('k', '{}', 'scheduled', 'overdue', now() - interval '1 hour'),
		('k', '{}', 'scheduled', 'soon', now() + interval '1200 ms'),
		('k', '{}', 'retryable', 'later', now() + interval '1500 ms'),
		('k', '{}', 'scheduled', 'never', now() + interval '1000 years')`)
	c.lead(t, c.makeLeader(t, 1))
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for notified := map[string]bool{}; len(notified) < 3; { // a slow leader releases several due jobs at once
		note, err := pgtest.WaitForNotification(ctx, listener)
		if err != nil {
			t.Fatalf("notified of %v: %v", notified, err)
		}
		notified[note.Payload] = true
		var available, early int
		// The time of a late release is in the notification.
		err = c.pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE scheduled_at > clock_timestamp())
			FROM river_job WHERE state = 'available' AND $1::jsonb ->> 'queue' = queue
			  AND coalesce(($1::jsonb ->> 'from')::timestamptz, scheduled_at) = scheduled_at
			  AND (queue <> 'overdue' OR $1::jsonb ? 'from')`, note.Payload).Scan(&available, &early)
		if err != nil || available != 1 || early != 0 {
			t.Errorf("notified of %s: %d jobs are available, %d too early, %v", note.Payload, available, early, err)
		}
	}
}

// Due jobs and orphans are moved in batches. If the database fails on large batches, the
// batches get smaller until they commit.
func TestManyDueJobsAndOrphansAreMovedInBatches(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(t, `INSERT INTO river_job (kind, args, state, scheduled_at)
		SELECT 'k', '{}', 'scheduled', now() - interval '1 s' FROM generate_series(1, 600)`)
	c.exec(t, `INSERT INTO river_job (kind, args, state, attempt, max_attempts, attempted_at, attempted_by)
		SELECT 'k', '{}', 'running', 1, 3, now(), ARRAY['a-' || $1::text] FROM generate_series(1, 600)`, incA)
	c.join(t, "a", incB) // the node was restarted
	pgtest.RefuseLargeUpdates(t, c.pool, "river_job", 200)
	c.lead(t, c.makeLeader(t, 1))
	c.waitFor(t, "all to be available", func() bool {
		var n int
		if err := c.pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE state = 'available'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1200
	})
}

func TestJobsOfCrashedNodeAreRescued(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	crash := c.join(t, "a", incA)
	c.join(t, "b", incB)
	again := c.running(t, "a-"+incA, 1, "{}")
	used := c.running(t, "a-"+incA, 3, "{}")
	cancelled := c.running(t, "a-"+incA, 1, `{"cancel_attempted_at": "2026-11-20T12:00:00Z"}`)
	living := c.running(t, "b-"+incB, 1, "{}")
	plain := c.running(t, "host_2026_11_20T15_04_05_000000", 1, "{}")
	stranger := c.running(t, "web-"+incA, 1, "{}")
	leftover := c.session(t, "forge:"+incA+":a")
	c.lead(t, c.makeLeader(t, 1))
	time.Sleep(2 * time.Second) // no living node may be fenced meanwhile
	if got := c.state(t, again); got != "running" {
		t.Fatalf("job of a living node is %s", got)
	}

	crash()
	c.waitFor(t, "the job to be available", func() bool { return c.state(t, again) == "available" })
	want := map[int64]string{used: "discarded", cancelled: "cancelled", living: "running", plain: "running", stranger: "running"}
	for id, state := range want {
		if got := c.state(t, id); got != state {
			t.Errorf("job %d is %s, want %s", id, got, state)
		}
	}
	var rescued eventstore.Rescued
	err := c.pool.QueryRow(t.Context(), `SELECT data FROM forge_events WHERE type = 'jobs_rescued' AND node_id = 'a' AND role = 'scheduler' AND term = 1`).Scan(&rescued)
	slices.Sort(rescued.IDs)
	if err != nil || rescued.Incarnation != incA || rescued.Cause == "" || rescued.Jobs != 3 || rescued.Available != 1 ||
		rescued.Cancelled != 1 || rescued.Discarded != 1 || !slices.Equal(rescued.IDs, []int64{again, used, cancelled}) {
		t.Errorf("the event of the rescue: %+v, %v", rescued, err)
	}
	if node, err := nodestore.New(c.pool).Get(t.Context(), "a"); err != nil || node.State != nodestore.Dead || node.FencedAt.IsZero() {
		t.Errorf("the dead node's row: %+v, %v", node, err)
	}
	c.waitFor(t, "the session of the dead node to end", func() bool { return leftover.Ping(t.Context()) != nil })
	// The metrics change after the commit is acknowledged.
	c.waitFor(t, "3 orphans and 1 rescued to be counted", func() bool {
		return testutil.ToFloat64(c.metrics.JobOrphaned) == 3 && testutil.ToFloat64(c.metrics.JobRescued) == 1
	})
	if lost := testutil.ToFloat64(c.metrics.JobFinished.WithLabelValues("k", jobstore.OutcomeLost)); lost != 3 {
		t.Errorf("%v attempts are counted as lost, want 3", lost)
	}
	c.requireLostAttempt(t, again)
}

// requireLostAttempt checks what a lost attempt records on its job.
func (c *cluster) requireLostAttempt(t *testing.T, id int64) {
	t.Helper()
	var (
		attempt           int
		rawError, rawLost []byte
		fresh             bool
	)
	err := c.pool.QueryRow(t.Context(), `SELECT attempt, errors[1], metadata -> 'forge:attempt:1',
		scheduled_at > now() - interval '1 minute' FROM river_job WHERE id = $1`, id).Scan(&attempt, &rawError, &rawLost, &fresh)
	if err != nil {
		t.Fatal(err)
	}
	var attemptError rivertype.AttemptError
	var lost jobstore.Attempt
	if err := errors.Join(json.Unmarshal(rawError, &attemptError), json.Unmarshal(rawLost, &lost)); err != nil {
		t.Fatal(err)
	}
	if attempt != 1 || !fresh || !strings.HasPrefix(attemptError.Error, "node lost: its database session ended, and there was no heartbeat for ") || attemptError.Attempt != 1 {
		t.Errorf("attempt %d, rescheduled %v, error %+v", attempt, fresh, attemptError)
	}
	if lost.Outcome != "lost" || lost.Error != attemptError.Error || lost.NodeID != "a" || lost.Attempt != 1 || lost.DurationMS < 3_600_000 {
		t.Errorf("lost attempt: %+v", lost)
	}
}

// A leader that finds most nodes lost need not wait for the dead threshold, here one
// hour, if its own session outlasted theirs.
func TestManyCrashesAreRescuedWithoutDeadThreshold(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	session := c.session(t, "forge:"+incC+":leader")
	c.exec(t, `UPDATE forge_leaders SET backend_pid = $1`, int(session.PgConn().PID()))
	crashA, crashB := c.join(t, "a", incA), c.join(t, "b", incB)
	first, second := c.running(t, "a-"+incA, 1, "{}"), c.running(t, "b-"+incB, 1, "{}")
	crashA()
	crashB()
	c.waitFor(t, "silence", func() bool {
		var silent bool
		err := c.pool.QueryRow(t.Context(), `SELECT max(last_heartbeat_at) < clock_timestamp() - interval '1.5 s' FROM forge_nodes`).Scan(&silent)
		return err == nil && silent
	})
	c.leadWithPolicy(t, fence, nodestore.Policy{DeadThreshold: time.Hour})
	for _, id := range []int64{first, second} {
		c.waitFor(t, "the jobs of both", func() bool { return c.state(t, id) == "available" })
	}
}

func TestSessionsOfIdleDeadNodeAreEnded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.join(t, "b", incB)
	crash := c.join(t, "a", incA)
	leftover, other := c.session(t, "forge:"+incA+":a"), c.session(t, "forge:"+incB+":b")
	crash()
	c.lead(t, c.makeLeader(t, 1))
	c.waitFor(t, "the session to end", func() bool { return leftover.Ping(t.Context()) != nil })
	if err := other.Ping(t.Context()); err != nil {
		t.Errorf("session of a living node: %v", err)
	}
}

// Without the privilege to end the sessions, the fences suffice.
func TestJobsAreRescuedWithoutPrivilegeToEndSessions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.join(t, "b", incB)
	crash := c.join(t, "a", incA)
	job := c.running(t, "a-"+incA, 1, "{}")
	leftover := c.session(t, "forge:"+incA+":a")
	crash()
	fence := c.makeLeader(t, 1)
	limited := &cluster{pool: c.poolAs(t, "limited"), metrics: c.metrics}
	limited.lead(t, fence)
	c.waitFor(t, "the job to be available", func() bool { return c.state(t, job) == "available" })
	if err := leftover.Ping(t.Context()); err != nil {
		t.Errorf("the session ended: %v", err)
	}
}

// poolAs returns a pool of a role that can only read and write every table and see every
// session.
func (c *cluster) poolAs(t *testing.T, name string) *pgxpool.Pool {
	t.Helper()
	config := c.pool.Config()
	role := pgx.Identifier{config.ConnConfig.Database + "_" + name}.Sanitize()
	for _, sql := range []string{
		"CREATE ROLE " + role + " LOGIN", "GRANT pg_read_all_stats TO " + role,
		"GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role, "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO " + role,
	} {
		c.exec(t, sql)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET SESSION AUTHORIZATION "+role)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		for _, sql := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := c.pool.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	return pool
}

// A session that reconnects holds no lock for a while, but its process sends heartbeats.
func TestReconnectingNodeIsNotDead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.join(t, "a", incA)
	job := c.running(t, "a-"+incA, 1, "{}")
	class, object := nodestore.SessionLock(incA)
	c.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND locktype = 'advisory' AND classid::bigint = $1 AND objid::bigint = $2`, int64(class), int64(uint32(object)))
	c.lead(t, c.makeLeader(t, 1))
	time.Sleep(4 * time.Second) // longer than the detection of a crash takes
	if got := c.state(t, job); got != "running" {
		t.Errorf("job of a node whose session reconnects is %s", got)
	}
}

func TestJobsOfRestartedOrDepartedNodeAreRescued(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.lead(t, c.makeLeader(t, 1))
	c.join(t, "a", incB) // incA was the previous process
	restarted := c.running(t, "a-"+incA, 1, "{}")
	current := c.running(t, "a-"+incB, 1, "{}")
	c.waitFor(t, "the old incarnation's job", func() bool { return c.state(t, restarted) == "available" })
	if got := c.state(t, current); got != "running" {
		t.Errorf("the new incarnation's job is %s", got)
	}
	if err := nodestore.New(c.pool).SetState(t.Context(), "a", incB, nodestore.Left); err != nil {
		t.Fatal(err)
	}
	c.waitFor(t, "the departed node's job", func() bool { return c.state(t, current) == "available" })
}

func TestDeposedLeaderChangesNothing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		state   string
		prepare func(t *testing.T, c *cluster)
	}{
		"due jobs": {state: "scheduled", prepare: func(t *testing.T, c *cluster) {
			t.Helper()
			c.exec(t, `INSERT INTO river_job (kind, args, state, scheduled_at) VALUES ('k', '{}', 'scheduled', now())`)
		}},
		"orphans": {state: "running", prepare: func(t *testing.T, c *cluster) {
			t.Helper()
			c.join(t, "a", incB)
			c.running(t, "a-"+incA, 1, "{}")
		}},
		"dead nodes": {prepare: func(t *testing.T, c *cluster) {
			t.Helper()
			c.join(t, "a", incA)()
			c.join(t, "b", incB)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			old := c.makeLeader(t, 1)
			c.makeLeader(t, 2)
			test.prepare(t, c)
			c.wantDeposed(t, old)
			var changed int
			err := c.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM river_job WHERE state <> $1::text::river_job_state)
				+ (SELECT count(*) FROM forge_nodes WHERE state = 'dead')`, cmp.Or(test.state, "available")).Scan(&changed)
			if err != nil || changed != 0 {
				t.Errorf("a deposed leader changed %d rows, %v", changed, err)
			}
		})
	}
}

// wantDeposed calls Lead and expects ErrDeposed.
func (c *cluster) wantDeposed(t *testing.T, fence leaderstore.Fence) {
	t.Helper()
	rescuer := rescue.New(rescue.Options{Pool: c.pool, Metrics: c.metrics, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	if err := rescuer.Lead(ctx, fence); !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("Lead() = %v, want ErrDeposed", err)
	}
}

// The leader analyzes the jobs after a burst, also if autovacuum does not.
func TestLeaderAnalyzesABurst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(t, `ALTER TABLE river_job SET (autovacuum_enabled = false)`)
	c.exec(t, `VACUUM ANALYZE river_job`)
	c.lead(t, c.makeLeader(t, 1))
	c.exec(t, `INSERT INTO river_job (args, kind, max_attempts) SELECT '{}', 'k', 1 FROM generate_series(1, 40000)`)
	c.waitFor(t, "the statistics of the jobs", func() bool {
		var rows float64
		if err := c.pool.QueryRow(t.Context(), `SELECT reltuples FROM pg_class WHERE oid = 'river_job'::regclass`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows > 0
	})
}
