package dashboard

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// slowCounts returns counts once it is released.
type slowCounts struct {
	dashboardtest.Jobs
	let chan struct{}
}

func (s slowCounts) CountsByQueueAndState(ctx context.Context) ([]jobstore.Count, error) {
	select {
	case <-s.let:
		return s.Jobs.CountsByQueueAndState(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Pages load before the jobs are counted and say so. Later they show the counts and their
// age.
func TestPagesDoNotWaitForJobCounts(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	counts := slowCounts{dashboardtest.Jobs{Cluster: c}, make(chan struct{})}
	options := optionsOf(c)
	options.Cluster.Source.Counts, options.Cluster.CountTimeout = counts, time.Nanosecond
	h := New(options)
	s := h.server.cluster
	for _, path := range []string{"/", "/jobs"} {
		if page := get(t, h, path); page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "Jobs are being counted.") || strings.Contains(page.Body.String(), "all <span") {
			t.Errorf("%s: %d %s", path, page.Code, page.Body)
		}
	}
	if page := get(t, h, "/").Body.String(); !strings.Contains(page, `<span class="tile-value">–</span>`) || strings.Contains(page, "0 completed") {
		t.Errorf("what is not counted is nought:\n%s", page)
	}
	if page := get(t, h, "/jobs?kind=dump").Body.String(); strings.Contains(page, "counted") {
		t.Error("what has no numbers is being counted")
	}
	close(counts.let)
	s.Counts.Wait()
	for _, path := range []string{"/", "/jobs"} {
		if page := get(t, h, path).Body.String(); !strings.Contains(page, "Jobs were counted <time") || strings.Contains(page, "are being counted") {
			t.Errorf("%s: %s", path, page)
		}
	}
}
