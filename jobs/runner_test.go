package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/jobs"
)

func TestOfferedJobCompletes(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"hello": shell(`echo "hello from $FORGE_CRON"; echo "attempt $FORGE_ATTEMPT" >&2`)})
	id := n.work(t, jobstore.NewJob{Kind: "hello", Metadata: map[string]any{
		jobstore.KeyCron: "every-second", jobstore.KeyTick: "2026-11-20T16:00:00Z", jobstore.KeyTerm: term,
	}})
	job := n.finish(t, id, "completed")
	if job.NodeID != nodeID || job.Cron != "every-second" || len(job.Attempts) != 1 {
		t.Fatalf("got %+v", job)
	}
	attempt := job.Attempts[0]
	if attempt.Attempt != 1 || attempt.Outcome != jobstore.OutcomeCompleted || attempt.ExitCode == nil ||
		*attempt.ExitCode != 0 || attempt.DurationMS <= 0 || attempt.OutputBytes != 34 {
		t.Errorf("got %+v", attempt)
	}
	if got := n.logs(t, id, 1, jobstore.StreamStdout); got != "hello from every-second\n" {
		t.Errorf("stdout is %q", got)
	}
	if got := n.logs(t, id, 1, jobstore.StreamStderr); got != "attempt 1\n" {
		t.Errorf("stderr is %q", got)
	}
	if got := testutil.ToFloat64(n.metrics.JobFinished.WithLabelValues("hello", "completed")); got != 1 {
		t.Errorf("%v finished jobs counted, want 1", got)
	}
	if got := testutil.ToFloat64(n.metrics.AssignmentClaims); got != 1 {
		t.Errorf("%v claims counted, want 1", got)
	}
}

func TestJobWithoutOfferIsNotClaimed(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"hello": shell("true")})
	alone, err := n.Insert(t.Context(), jobstore.NewJob{Kind: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	n.finish(t, n.work(t, jobstore.NewJob{Kind: "hello"}), "completed")
	if job := n.finish(t, alone, "available"); job.Attempt != 0 {
		t.Errorf("got %+v", job)
	}
}

func TestCreditFollowsSlots(t *testing.T) {
	t.Parallel()
	barrier := filepath.Join(t.TempDir(), "barrier")
	n := startNode(t, map[string]config.Job{"wait": shell("until [ -e " + barrier + " ]; do sleep 0.01; done; exit 1")},
		func(o *jobs.Options) { o.Queues = map[string]int{"default": 3, "other": 2} })
	id := n.work(t, jobstore.NewJob{Kind: "wait", Priority: 2})
	n.wantCredit(t, func(c wire.Credit) bool {
		return c.Slots == 3 && c.Free["default"] == 2 && c.Free["other"] == 2 && c.Seen == n.seq.Load() && c.Term == term
	})
	open(t, barrier)
	n.finish(t, id, "available", "retryable")
	n.wantCredit(t, func(c wire.Credit) bool { return c.Slots == 4 && c.Free["default"] == 3 && c.Free["other"] == 2 })
}

// waitFor returns work that ends when release is closed or the attempt is cancelled.
func waitFor(release <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

func TestSlotsLimitAllQueuesTogether(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		release := make(chan struct{})
		n := startNode(t, nil, add.worker(waitFor(release)), func(o *jobs.Options) { o.Slots, o.Queues = 2, map[string]int{"default": 2, "other": 2} })
		var ids []int64
		for _, queue := range []string{"default", "default", "other", "other"} {
			id, err := n.Insert(t.Context(), jobstore.NewJob{Kind: "greet", Queue: queue})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		n.send(t, wire.Offer{Term: term, Seq: n.seq.Add(1), Jobs: map[string][]int64{"default": ids[:2], "other": ids[2:]}})
		eventually(t, func() bool { return n.Running() == 2 }, func() string { return "two jobs never ran" })
		for range 20 { // the other two must not start
			if got := n.Running(); got != 2 {
				t.Fatalf("%d jobs run on 2 slots", got)
			}
			time.Sleep(5 * time.Millisecond)
		}
		close(release)
		for _, id := range ids { // the waiting offers are claimed when a slot is free
			n.finish(t, id, "completed")
		}
	})
}

// The node enforces a queue's own limit for any offer, and the other queues keep their
// slots.
func TestMaxWorkersLimitsQueue(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		release := make(chan struct{})
		n := startNode(t, nil, add.worker(waitFor(release)), func(o *jobs.Options) { o.Slots, o.Queues = 4, map[string]int{"default": 4, "slow": 1} })
		jobsOf := map[string][]int64{}
		for _, queue := range []string{"slow", "slow", "slow", "default", "default"} {
			id, err := n.Insert(t.Context(), jobstore.NewJob{Kind: "greet", Queue: queue})
			if err != nil {
				t.Fatal(err)
			}
			jobsOf[queue] = append(jobsOf[queue], id)
		}
		n.send(t, wire.Offer{Term: term, Seq: n.seq.Add(1), Jobs: jobsOf})
		eventually(t, func() bool { return n.Running() == 3 }, func() string { return "three jobs never ran" })
		for range 20 { // the other two must not start
			if got := n.Running(); got != 3 {
				t.Fatalf("%d jobs run; want two, and one of the slow queue", got)
			}
			time.Sleep(5 * time.Millisecond)
		}
		close(release)
		for _, id := range jobsOf["slow"] {
			n.finish(t, id, "completed")
		}
	})
}

func TestOffersOfStaleTermsAreRejected(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"hello": shell("true")})
	stale, err := n.Insert(t.Context(), jobstore.NewJob{Kind: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	// Older than the node's term: dropped without a statement.
	n.send(t, wire.Offer{Term: term - 1, Seq: 99, Jobs: map[string][]int64{"default": {stale}}})
	n.finish(t, n.work(t, jobstore.NewJob{Kind: "hello"}), "completed")
	// Newer than the node's term, but over in the database.
	exec(t, n.pool, `UPDATE forge_leaders SET term = $1`, term+5)
	n.send(t, wire.Offer{Term: term + 1, Seq: 1, Jobs: map[string][]int64{"default": {stale}}})
	n.wantCredit(t, func(c wire.Credit) bool { return c.Term == term+1 && c.Seen == 1 })
	eventually(t, func() bool { return testutil.ToFloat64(n.metrics.AssignmentRefused) == 2 },
		func() string { return "the two stale offers were not counted" })
	if job := n.finish(t, stale, "available"); job.Attempt != 0 {
		t.Errorf("got %+v", job)
	}
}

func TestOfferedJobRunsWithoutLeader(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"hello": shell("true")})
	exec(t, n.pool, `UPDATE forge_leaders SET node_id = NULL, incarnation = NULL, lease_until = NULL`)
	n.finish(t, n.work(t, jobstore.NewJob{Kind: "hello"}), "completed")
}

func TestFencedNodeClaimsNothing(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"hello": shell("true")})
	exec(t, n.pool, `UPDATE forge_nodes SET fenced_at = now()`)
	id := n.work(t, jobstore.NewJob{Kind: "hello"})
	eventually(t, func() bool { return testutil.ToFloat64(n.metrics.AssignmentRefused) == 1 },
		func() string { return "the rejection was not counted" })
	if job := n.finish(t, id, "available"); job.Attempt != 0 {
		t.Errorf("got %+v", job)
	}
}

// fences are the ways in which a node loses an attempt.
var fences = map[string]string{
	"another client holds the newest attempt": `UPDATE river_job SET attempt = attempt + 1, attempted_by = array_append(attempted_by, 'other-0123456789abcdef')`,
	"the node is fenced":                      `UPDATE forge_nodes SET fenced_at = now()`,
}

func TestStaleAttemptCannotFinishNewerOne(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		for name, fence := range fences {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				running, release := make(chan struct{}), make(chan struct{})
				n := startNode(t, nil, add.worker(func(context.Context) error {
					close(running)
					<-release
					return nil
				}))
				id := n.work(t, jobstore.NewJob{Kind: "greet"})
				<-running
				exec(t, n.pool, fence)
				close(release)
				eventually(t, func() bool {
					return testutil.ToFloat64(n.metrics.JobFinished.WithLabelValues("greet", "fenced")) == 1
				}, func() string { return "the stale result was not rejected" })
				job := n.finish(t, id, "running")
				if len(job.Attempts) != 0 {
					t.Errorf("the stale attempt stored its result: %+v", job.Attempts)
				}
				n.stop() // the completer is not blocked
			})
		}
	})
}

func TestDrainWaitsForRunningJobs(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		running, release := make(chan struct{}), make(chan struct{})
		n := startNode(t, nil, add.worker(func(ctx context.Context) error {
			close(running)
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
		id := n.work(t, jobstore.NewJob{Kind: "greet"})
		<-running
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			n.stop()
		}()
		n.wantCredit(t, func(c wire.Credit) bool { return c.Slots == 0 && c.Free["default"] == 0 })
		late := n.work(t, jobstore.NewJob{Kind: "greet"})
		close(release)
		<-stopped
		n.finish(t, id, "completed")
		if job := n.finish(t, late, "available"); job.Attempt != 0 {
			t.Errorf("a draining node claimed %+v", job)
		}
	})
}

func TestRunReturnsIfContextHasEnded(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"greet": shell("true")})
	n.stop()
	runner, err := jobs.New(jobs.Options{
		Pool: n.pool, NodeID: nodeID, Incarnation: n.incarnation, Slots: 1, Logger: slog.New(slog.DiscardHandler),
		Jobs: map[string]config.Job{"greet": shell("true")}, Metrics: metrics.New("test"),
	})
	if err != nil {
		t.Fatal(err)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if err := runner.Run(over); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
}

func TestAbandonedJobsAreCancelledAtOnce(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"sleep": shell("echo on; exec sleep 300")})
	id := n.work(t, jobstore.NewJob{Kind: "sleep"})
	eventually(t, func() bool { return n.logs(t, id, 1, jobstore.StreamStdout) != "" },
		func() string { return "the job never began" })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Abandon(t.Context())
	}()
	select {
	case <-ended:
	case <-time.After(waitTimeout):
		t.Fatal("abandoned jobs still run")
	}
}

func TestDrainReleasesUnfinishedJobs(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"sleep": shell("echo on; exec sleep 300")},
		func(o *jobs.Options) { o.DrainTimeout = 50 * time.Millisecond })
	id := n.work(t, jobstore.NewJob{Kind: "sleep"})
	eventually(t, func() bool { return n.logs(t, id, 1, jobstore.StreamStdout) != "" },
		func() string { return "the job never began" })
	n.stop()
	job := n.finish(t, id, "available")
	if job.Attempt != 0 || job.LastError != "" || len(job.Attempts) != 1 || job.Attempts[0].Outcome != jobstore.OutcomeInterrupted {
		t.Errorf("got %+v", job)
	}
}

func TestCancelEndsRunningJob(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"sleep": shell("echo on; exec sleep 300")})
	id := n.work(t, jobstore.NewJob{Kind: "sleep"})
	eventually(t, func() bool { return n.logs(t, id, 1, jobstore.StreamStdout) != "" },
		func() string { return "the job never began" })
	if _, err := n.Client().JobCancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	job := n.finish(t, id, "cancelled")
	if job.Attempts[0].Outcome != jobstore.OutcomeCancelled {
		t.Errorf("got %+v", job.Attempts)
	}
}

func TestFailedAttemptIsRetriedAsConfigured(t *testing.T) {
	t.Parallel()
	job := shell(`echo "boom $FORGE_ATTEMPT"; exit $FORGE_ATTEMPT`)
	job.Retry = config.Retry{MaxAttempts: 2, Backoff: config.Duration(time.Minute)}
	n := startNode(t, map[string]config.Job{"fail": job})
	id := n.work(t, jobstore.NewJob{Kind: "fail"})
	first := n.finish(t, id, "retryable")
	// The attempt ended between these two times. The delay is a minute plus or minus ten
	// percent.
	if began := first.Attempts[0].StartedAt; first.ScheduledAt.Sub(began) < 54*time.Second || time.Until(first.ScheduledAt) > 66*time.Second {
		t.Errorf("retried at %s, began at %s; want a minute", first.ScheduledAt, began)
	}
	exec(t, n.pool, `UPDATE river_job SET state = 'available', scheduled_at = now()`)
	n.offer(t, id)
	second := n.finish(t, id, "discarded")
	if len(second.Attempts) != 2 || *second.Attempts[0].ExitCode != 1 || *second.Attempts[1].ExitCode != 2 ||
		second.LastError != "exit status 2" || second.Attempts[0].Error != "exit status 1" {
		t.Errorf("got %+v", second)
	}
	if got := n.logs(t, id, 2, jobstore.StreamStdout); got != "boom 2\n" {
		t.Errorf("the second attempt's output is %q", got)
	}
}

func TestNewErrorNamesInvalidJob(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]config.Job{
		"no-kind":    {},
		"no-command": {Kind: config.KindShell},
		"bad-url":    {Kind: config.KindHTTP, URL: "ftp://example.com"},
		"no-sql":     {Kind: config.KindSQL},
	} {
		_, err := jobs.New(jobs.Options{Jobs: map[string]config.Job{name: job}, Slots: 1})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestInserterNeedsNoNode(t *testing.T) {
	t.Parallel()
	n := &node{pool: pgtest.Pool(t)}
	inserter, err := jobs.NewInserter(n.pool, "")
	if err != nil {
		t.Fatal(err)
	}
	due := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	var ids []int64
	err = pgx.BeginFunc(t.Context(), n.pool, func(tx pgx.Tx) error {
		ids, err = inserter.InsertMany(t.Context(), tx, []jobstore.NewJob{
			{Kind: "a", Args: []byte(`{"x":1}`), Queue: "slow", Priority: 3, MaxAttempts: 4, ScheduledAt: due},
			{Kind: "b"},
		})
		return err
	})
	if err != nil || len(ids) != 2 {
		t.Fatalf("got %v, %v", ids, err)
	}
	a := n.finish(t, ids[0], "scheduled")
	if a.Kind != "a" || string(a.Args) != `{"x": 1}` || a.Queue != "slow" || a.Priority != 3 || a.MaxAttempts != 4 || !a.ScheduledAt.Equal(due) {
		t.Errorf("got %+v", a)
	}
	if b := n.finish(t, ids[1], "available"); b.Queue != "default" || b.MaxAttempts != 25 || string(b.Args) != "{}" {
		t.Errorf("got %+v", b)
	}
	if _, err := jobstore.New(n.pool).Get(t.Context(), 1<<40); !errors.Is(err, jobstore.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}
