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
