package jobs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestFinishedJobsAreLoggedOncePerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := newSummary(slog.New(slog.NewTextHandler(&text, nil)))
		ctx, stop := context.WithCancel(t.Context())
		go s.run(ctx)
		for i := range 1000 {
			s.add("report", jobstore.OutcomeCompleted)
			s.add(fmt.Sprint("small", i%8), jobstore.OutcomeFailed)
		}
		time.Sleep(3 * summaryEvery) // two of these minutes have no jobs
		synctest.Wait()
		const want = `msg="jobs finished" in=1m0s completed=1000 failed=1000 kinds="report 1000, small0 125, small1 125, small2 125, small3 125, others 500"`
		if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
		text.Reset()
		s.add("report", jobstore.OutcomeCompleted)
		stop()
		synctest.Wait()
		if got := text.String(); !strings.Contains(got, `completed=1 kinds="report 1"`) {
			t.Errorf("the jobs before the end are not logged: %q", got)
		}
	})
}

func TestOnlyFailuresAreLoggedSeparately(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	r := &recorder{logger: slog.New(slog.NewTextHandler(&text, nil))}
	for _, outcome := range []string{
		jobstore.OutcomeCompleted, jobstore.OutcomeCancelled, jobstore.OutcomeInterrupted, jobstore.OutcomeSnoozed,
		jobstore.OutcomeFailed, jobstore.OutcomeTimedOut,
	} {
		r.report(t.Context(), &attempt{}, jobstore.Attempt{Outcome: outcome}, time.Second)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "outcome=failed") ||
		!strings.Contains(lines[1], "outcome=timed_out") {
		t.Errorf("logged:\n%s", text.String())
	}
}
