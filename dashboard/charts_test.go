package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/metrics"
)

func TestChartsPage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Windows = []aggregator.Row{
		dashboardtest.Window(metrics.NodesName, 60*5, 1), dashboardtest.Window("forge_job_started_total", 60*5, 30, "kind", "a"),
	}
	h := handlerOf(c)
	page := get(t, h, "/charts?span=6h").Body.String()
	for _, want := range []string{
		`href="/charts?span=6h" aria-current="true"`, `aria-label="Jobs a minute: started 6 now, at most 6;`, `<path class="chart-line live" d="M`,
		"2026-11-20 07:00 UTC: started 6", ">07:00</text>", ">Nov 20, 06:00</text>", `<a href="/charts" aria-current="page" data-key="m">Metrics</a>`, "No data for this time",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
	if q := c.Added; q.Step != aggregator.FiveMinutes || q.Point != 5*time.Minute || !q.From.Equal(dashboardtest.Epoch.Add(-6*time.Hour)) || !q.To.Equal(dashboardtest.Epoch) {
		t.Errorf("it asked for %+v", q)
	}
	if w := get(t, h, "/charts?span=2y"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "span: found &#34;2y&#34;, want a duration from 1s to 3660d, such as 6h") {
		t.Errorf("span=2y: %d", w.Code)
	}
}

// Pages with the same charts share one drawing until there can be newer data.
func TestChartsAreCachedUntilNextPoint(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Windows = []aggregator.Row{dashboardtest.Window(metrics.NodesName, 1, 1), dashboardtest.Window("forge_job_started_total", 1, 30, "kind", "a")}
	h := handlerOf(c)
	reads := func(at time.Duration, span string) int {
		c.Heartbeat(dashboardtest.Epoch.Add(at))
		before := c.ReadCount()
		if page := get(t, h, "/charts?span="+span).Body.String(); !strings.Contains(page, "started") {
			t.Errorf("at %s the page is\n%s", at, page)
		}
		return c.ReadCount() - before
	}
	first, kept := reads(time.Second, "1h"), reads(59*time.Second, "1h")
	if again := reads(time.Minute, "1h"); kept >= first || again != first {
		t.Errorf("%d readings at first, %d within the minute, %d after it", first, kept, again)
	}
	if other := reads(time.Minute, "6h"); other != first {
		t.Errorf("%d readings for another stretch, want %d", other, first)
	}
}

func TestStoragePage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	if page := get(t, handlerOf(c), "/storage").Body.String(); !strings.Contains(page, "9 chunks") || !strings.Contains(page, "overdue") {
		t.Errorf("passes that end in the year 1 are late:\n%s", page)
	}
	c.Passes = []compactor.Pass{{
		NodeID: "node-2", StartedAt: dashboardtest.Epoch.Add(-time.Minute), EndedAt: dashboardtest.Epoch.Add(-58 * time.Second), NextAt: dashboardtest.Epoch.Add(4 * time.Minute),
		Removed: map[string]int64{"cron_ticks": 1200}, Failed: map[string]string{"merge": "a pack cannot be read"},
		Chunks: 4000, TextBytes: 4 << 20, PackBytes: 1 << 19,
	}}
	page := get(t, handlerOf(c), "/storage").Body.String()
	for _, want := range []string{
		"1,200 cron ticks", "4,000 chunks, 4.0 MiB to 512 KiB", "2.00 s", "merge: a pack cannot be read", "in 4m 00s",
		`id="table-river_job"`, "8.0 KiB", `<a href="/storage" aria-current="page" data-key="t">Storage</a>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "overdue") {
		t.Errorf("a pass that is to come is overdue:\n%s", page)
	}
	c.Passes = nil
	if page := get(t, handlerOf(c), "/storage").Body.String(); !strings.Contains(page, "No pass yet") {
		t.Errorf("no pass:\n%s", page)
	}
}
