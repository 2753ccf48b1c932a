package crons

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// Each verdict that a leader records has a series that starts at 0 and rises. No series
// exists for the ticks of operators, which no leader records.
func TestEachVerdictIsCounted(t *testing.T) {
	t.Parallel()
	collected := metrics.New("test")
	m := newMeter(collected)
	m.initSeries([]cronstore.Upcoming{{Name: "c"}})
	verdicts := []cronstore.Verdict{
		cronstore.Fired, cronstore.CaughtUp, cronstore.Queued, cronstore.SkippedOverlap, cronstore.SkippedWindow, cronstore.SkippedLimit,
		cronstore.SkippedDST, cronstore.SkippedPaused, cronstore.SkippedExcluded, cronstore.Replaced, cronstore.Failed,
	}
	for range 2 { // before and after
		if n := testutil.CollectAndCount(collected.CronTicks); n != len(verdicts) {
			t.Errorf("%d series, want %d", n, len(verdicts))
		}
		for _, verdict := range verdicts {
			m.count([]cronstore.Tick{{Cron: "c", Verdict: verdict, Count: 2}}, time.Now())
		}
	}
	for _, verdict := range verdicts {
		if got := testutil.ToFloat64(collected.CronTicks.WithLabelValues("c", string(verdict))); got != 4 {
			t.Errorf("%v ticks were %s, want 4", got, verdict)
		}
	}
	if runs := testutil.ToFloat64(collected.CronRuns.WithLabelValues("c")); runs != 8 {
		t.Errorf("%v runs, want those that fired or caught up", runs)
	}
	if missed := testutil.ToFloat64(collected.CronMissed.WithLabelValues("c")); missed != 8 {
		t.Errorf("%v missed, want those outside of the window or the limit", missed)
	}
	if failures := testutil.ToFloat64(collected.CronFailures.WithLabelValues("c")); failures != 4 {
		t.Errorf("%v failures, want 4", failures)
	}
}
