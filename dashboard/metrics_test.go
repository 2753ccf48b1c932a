package dashboard

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
)

func TestMetricsRange(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	role := func(name string) map[string]string { return map[string]string{"role": name} }
	c.Windows = []aggregator.Row{
		{Metric: "forge_leader_is_leader", Labels: role("a"), At: dashboardtest.Epoch, Value: .5, Greatest: 1, Last: 1},
		{Metric: "forge_leader_is_leader", Labels: role("a"), At: dashboardtest.Epoch.Add(time.Minute), Value: 1, Least: 1, Greatest: 1, Last: 1},
		{Metric: "forge_leader_is_leader", Labels: role("b"), At: dashboardtest.Epoch},
	}
	body := get(t, h, "/api/v1/metrics/range?metric=forge_leader_is_leader&label.role=a&from=2026-11-20T11:00:00Z").Body.String()
	want := `{"metric":"forge_leader_is_leader","step":"1m","from":"2026-11-20T11:00:00Z","to":"2026-11-20T12:00:00Z","series":[` +
		`{"labels":{"role":"a"},"points":[{"at":"2026-11-20T12:00:00Z","value":0.5,"min":0,"max":1,"last":1},{"at":"2026-11-20T12:01:00Z","value":1,"min":1,"max":1,"last":1}]},` +
		`{"labels":{"role":"b"},"points":[{"at":"2026-11-20T12:00:00Z","value":0,"min":0,"max":0,"last":0}]}]}` + "\n"
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if q := c.Asked; q.Labels["role"] != "a" || q.Step != aggregator.Minute || !q.From.Equal(dashboardtest.Epoch.Add(-time.Hour)) || !q.To.Equal(dashboardtest.Epoch) {
		t.Errorf("it asked for %+v", q)
	}

	c.Windows = []aggregator.Row{{
		Metric: "h_seconds", Labels: map[string]string{}, At: dashboardtest.Epoch, Value: 2, Last: 9,
		Histogram: &metrics.Histogram{Sum: 1.5, Buckets: map[string]float64{"1": 2}},
	}}
	body = get(t, h, "/api/v1/metrics/range?metric=h_seconds&step=1h").Body.String()
	if want := `{"at":"2026-11-20T12:00:00Z","value":2,"last":9,"sum":1.5,"p50":0.75,"p90":0.95,"p95":0.975,"p99":0.995}`; !strings.Contains(body, want) {
		t.Errorf("the histogram is %s, want %s", body, want)
	}
}

// During an outage of the database, the cluster metrics are refused like other requests.
func TestClusterMetricsWithoutDatabase(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	if w := get(t, h, "/metrics/cluster"); w.Code != http.StatusOK || w.Body.String() != "forge_build_info 1\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	c.Change(func(c *dashboardtest.Cluster) { c.Err = errors.New("no database") })
	w := get(t, h, "/metrics/cluster")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Content-Type") != web.ProblemMedia {
		t.Errorf("%d %s %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
}

func TestMetricsRangeRefuses(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for asked, want := range map[string]string{
		"":                                   "metric must name one",
		"metric=a&step=2m":                   "step must be one of [1m 5m 1h]",
		"metric=a&from=yesterday":            "from must be a time",
		"metric=a&from=2027-01-01T00:00:00Z": "from must be before to",
		"metric=a&to=2020-01-01T00:00:00Z&from=2020-01-01T00:00:00Z": "from must be before to",
	} {
		if w := get(t, h, "/api/v1/metrics/range?"+asked); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%q: %d %s, want %q", asked, w.Code, w.Body, want)
		}
	}
}
