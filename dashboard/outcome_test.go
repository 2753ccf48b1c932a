package dashboard

import (
	"testing"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Only an attempt without an outcome is still running.
func TestEndedAttemptIsNotShownAsRunning(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{
		jobstore.OutcomeCompleted, jobstore.OutcomeFailed, jobstore.OutcomeCancelled, jobstore.OutcomeTimedOut,
		jobstore.OutcomeInterrupted, jobstore.OutcomeSnoozed, jobstore.OutcomeLost,
	} {
		if b := charts.OutcomeBadge(outcome); b.Tone == "live" || b.Words == "" {
			t.Errorf("%s shows as %+v", outcome, b)
		}
	}
	if b := charts.OutcomeBadge(""); b.Tone != "live" {
		t.Errorf("a running attempt shows as %+v", b)
	}
}
