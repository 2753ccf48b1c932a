package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// Every attempt is counted by its outcome, which is also that of the recorded attempt.
func TestAttemptsAreCountedByOutcome(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		results := map[string]error{
			jobstore.OutcomeCompleted: nil, jobstore.OutcomeFailed: errors.New("broken"),
			jobstore.OutcomeCancelled: river.JobCancel(errors.New("enough")), jobstore.OutcomeSnoozed: river.JobSnooze(time.Hour),
		}
		slow := shell("sleep 600")
		slow.Timeout = config.Duration(100 * time.Millisecond)
		next := make(chan error, 1)
		n := startNode(t, map[string]config.Job{"slow": once(slow), "held": once(shell("sleep 600"))}, add.worker(func(context.Context) error { return <-next }))
		counted := func(kind, outcome string) float64 {
			return testutil.ToFloat64(n.metrics.JobFinished.WithLabelValues(kind, outcome))
		}
		want := func(kind, outcome string, id int64, states ...string) {
			t.Helper()
			job := n.finish(t, id, states...)
			if got := job.Attempts[0].Outcome; got != outcome {
				t.Errorf("job of kind %s: %s, want %s", kind, got, outcome)
			}
			eventually(t, func() bool { return counted(kind, outcome) == 1 }, func() string { return kind + ": " + outcome + " is not counted" })
		}
		for outcome, result := range results {
			next <- result
			want("greet", outcome, n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 1}), "completed", "discarded", "cancelled", "scheduled")
		}
		want("slow", jobstore.OutcomeTimedOut, n.work(t, jobstore.NewJob{Kind: "slow"}), "discarded")
		held := n.work(t, jobstore.NewJob{Kind: "held"})
		n.finish(t, held, "running")
		if _, err := n.Client().JobCancel(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		want("held", jobstore.OutcomeCancelled, held, "cancelled")
	})
}

// An attempt counts for its kind, queue, node and cron alike.
func TestAttemptsAreCountedByQueueNodeAndCron(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"ok": shell("true"), "bad": once(shell("false"))})
	n.finish(t, n.work(t, jobstore.NewJob{Kind: "ok"}), "completed")
	n.finish(t, n.work(t, jobstore.NewJob{Kind: "bad", Metadata: tickMetadata}), "discarded")
	for name, of := range map[string]struct {
		attempts          metrics.Attempts
		label             string
		completed, failed float64
	}{
		"queue": {n.metrics.QueueJobs, "default", 1, 1}, "node": {n.metrics.NodeJobs, nodeID, 1, 1}, "cron": {n.metrics.CronJobs, "nightly", 0, 1},
	} {
		eventually(t, func() bool {
			return testutil.ToFloat64(of.attempts.Finished.WithLabelValues(of.label, jobstore.OutcomeCompleted)) == of.completed &&
				testutil.ToFloat64(of.attempts.Finished.WithLabelValues(of.label, jobstore.OutcomeFailed)) == of.failed
		}, func() string { return "the attempts by " + name + " are not counted" })
		samples, err := n.metrics.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		measured := 0
		for _, sample := range samples {
			if dimension, key, of := metrics.Division(sample.Name, sample.Labels); dimension == name && key != "" && (of == metrics.MeasureWait || of == metrics.MeasureDuration) {
				measured += int(sample.Value)
			}
		}
		if want := 2 * int(of.completed+of.failed); measured != want {
			t.Errorf("by %s, %d waits and durations were measured, want %d", name, measured, want)
		}
	}
}
