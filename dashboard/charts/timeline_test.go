package charts

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestAttemptsAreDrawnFromTheTickToTheEnd(t *testing.T) {
	t.Parallel()
	job := jobstore.Job{
		State: "completed", Tick: dashboardtest.Epoch, CreatedAt: dashboardtest.Epoch.Add(time.Second), FinalizedAt: dashboardtest.Epoch.Add(10 * time.Second), Attempt: 2,
		Attempts: []jobstore.Attempt{
			{Attempt: 1, StartedAt: dashboardtest.Epoch.Add(2 * time.Second), DurationMS: 1000, Outcome: jobstore.OutcomeFailed},
			{Attempt: 2, StartedAt: dashboardtest.Epoch.Add(5 * time.Second), DurationMS: 5000, Outcome: "completed"},
		},
	}
	bars, axis, label := DrawAttempts(dashboardtest.Epoch, job)
	if label != "2 attempts in 10.00 s" || len(bars) != 2 || axis[2].Text != "+10.00 s" {
		t.Fatalf("%d bars, %q", len(bars), label)
	}
	if b := bars[0]; b.X != "20.000%" || b.Width != "10.000%" || b.Tone != "bad" || b.Title != "Attempt 1: failed, began 2.00 s after the job was added, took 1.00 s" {
		t.Errorf("the first bar is %+v", b)
	}
	if b := bars[1]; b.X != "50.000%" || b.Width != "50.000%" || b.Y != AttemptHeight+3 {
		t.Errorf("the second bar is %+v", b)
	}
	wantWaits(t, bars[0].Before, "queued 0.000% 20.000% Waited in its queue for 2.00 s")
	wantWaits(t, bars[1].Before, "queued 30.000% 20.000% Waited in its queue for 2.00 s")
	job.ScheduledAt = dashboardtest.Epoch.Add(4 * time.Second)
	bars, _, _ = DrawAttempts(dashboardtest.Epoch, job)
	wantWaits(t, bars[1].Before, "backoff 30.000% 10.000% Back-off for 1.00 s", "queued 40.000% 10.000% Waited in its queue for 1.00 s")
	job.CreatedAt, job.Tick, job.FinalizedAt = dashboardtest.Epoch.Add(-48*time.Hour), time.Time{}, time.Time{}
	if bars, _, _ := DrawAttempts(dashboardtest.Epoch.Add(10*time.Second), job); bars[0].X != "0.000%" {
		t.Errorf("a long wait squeezes the attempts: %+v", bars[0])
	}
}

func wantWaits(t *testing.T, got []WaitBar, want ...string) {
	t.Helper()
	var lines []string
	for _, w := range got {
		lines = append(lines, fmt.Sprint(w.Tone, " ", w.X, " ", w.Width, " ", w.Title))
	}
	if !slices.Equal(lines, want) {
		t.Errorf("waits %q, want %q", lines, want)
	}
}

// The back-off before the next attempt of a waiting job is drawn up to when that is due.
func TestTheNextAttemptIsDrawn(t *testing.T) {
	t.Parallel()
	job := jobstore.Job{
		State: "retryable", CreatedAt: dashboardtest.Epoch, ScheduledAt: dashboardtest.Epoch.Add(10 * time.Second), Attempt: 1,
		Attempts: []jobstore.Attempt{{Attempt: 1, StartedAt: dashboardtest.Epoch, DurationMS: 2000, Outcome: jobstore.OutcomeFailed}},
	}
	bars, _, label := DrawAttempts(dashboardtest.Epoch.Add(4*time.Second), job)
	if len(bars) != 2 || label != "1 attempt in 10.00 s" || bars[1].X != "100.000%" || len(bars[0].Before) != 0 {
		t.Fatalf("%+v, %q", bars, label)
	}
	wantWaits(t, bars[1].Before, "backoff 20.000% 80.000% Back-off for 8.00 s")
	bars, _, _ = DrawAttempts(dashboardtest.Epoch.Add(20*time.Second), job) // no node takes it
	wantWaits(t, bars[1].Before, "backoff 10.000% 40.000% Back-off for 8.00 s", "queued 50.000% 50.000% Waited in its queue for 10.00 s")
	job.ScheduledAt = dashboardtest.Epoch.Add(72 * time.Hour)
	bars, _, _ = DrawAttempts(dashboardtest.Epoch.Add(4*time.Second), job)
	wantWaits(t, bars[1].Before, "backoff 50.000% 50.000% Back-off for 2.00 s")
}
