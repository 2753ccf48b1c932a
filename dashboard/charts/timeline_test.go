package charts

import (
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
	job.CreatedAt, job.Tick, job.FinalizedAt = dashboardtest.Epoch.Add(-48*time.Hour), time.Time{}, time.Time{}
	if bars, _, _ := DrawAttempts(dashboardtest.Epoch.Add(10*time.Second), job); bars[0].X != "0.000%" {
		t.Errorf("a long wait squeezes the attempts: %+v", bars[0])
	}
}
