package charts

import (
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// The charts of a queue show its own series, not those of other queues.
func TestDrawQueue(t *testing.T) {
	t.Parallel()
	share := func(key string, attempts int64) aggregator.SharePoint {
		wait := &metrics.Histogram{Buckets: map[string]float64{"1": 2 * float64(attempts)}}
		return aggregator.SharePoint{At: dashboardtest.Epoch.Add(-time.Minute), Share: aggregator.Share{Key: key, Attempts: attempts, Failures: 1, Wait: wait}}
	}
	c := &dashboardtest.Cluster{Shares: []aggregator.SharePoint{share("mail", 3), share(aggregator.Other, 1000)}, Windows: []aggregator.Row{
		dashboardtest.Window(presence, 1, 1, "state", "active"),
		dashboardtest.Window(metrics.QueueDepthName, 1, 7, "queue", "mail", "state", "available"),
		dashboardtest.Window(metrics.QueueDepthName, 1, 100, "queue", "other", "state", "available"),
		dashboardtest.Window(metrics.QueueOldestName, 1, 90, "queue", "mail"),
		dashboardtest.Window(metrics.QueueOldestName, 1, 1000, "queue", "other"),
	}}
	drawn, err := DrawQueue(t.Context(), dashboardtest.History{Cluster: c}, "mail", window.Last(time.Hour, dashboardtest.Epoch, time.UTC), dashboardtest.Epoch)
	if err != nil || len(drawn.Charts) != 5 {
		t.Fatalf("%+v, %v", drawn, err)
	}
	for i, want := range []string{"started 6 now, at most 6; finished 3 now, at most 3; failed 1 now", "p95 975 ms now", "nothing is known of this time", "available 7 now, at most 7;", "waits 1m 30s now"} {
		if label := drawn.Charts[i].Label; !strings.Contains(label, want) {
			t.Errorf("chart %d: %s", i, label)
		}
	}
}

// At a point at which only others were kept, a queue's line has a gap rather than 0.
func TestDrawQueueAmongOthers(t *testing.T) {
	t.Parallel()
	at := func(minutes int, key string, folded bool) aggregator.SharePoint {
		return aggregator.SharePoint{At: dashboardtest.Epoch.Add(-time.Duration(minutes) * time.Minute), Share: aggregator.Share{Key: key, Attempts: 5}, Folded: folded}
	}
	c := &dashboardtest.Cluster{Shares: []aggregator.SharePoint{at(3, "mail", false), at(2, aggregator.Other, false), at(1, aggregator.Other, true)}, Windows: []aggregator.Row{
		dashboardtest.Window(presence, 3, 1), dashboardtest.Window(presence, 2, 1), dashboardtest.Window(presence, 1, 1),
	}}
	drawn, err := DrawQueue(t.Context(), dashboardtest.History{Cluster: c}, "mail", window.Last(time.Hour, dashboardtest.Epoch, time.UTC), dashboardtest.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, column := range drawn.Charts[0].Columns[57:] {
		_, text, _ := strings.Cut(column.Title, ": ")
		said = append(said, strings.ReplaceAll(text, "\n", ", "))
	}
	if got, want := strings.Join(said, "; "), "started 0 a minute, finished 5 a minute, failed 0 a minute; started 0 a minute, finished 0 a minute, failed 0 a minute; no data"; got != want {
		t.Errorf("the points are %s, want %s", got, want)
	}
}
