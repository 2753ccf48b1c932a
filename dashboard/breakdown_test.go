package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// dividedCluster has shares of two keys and of all others, at the first minute of the last hour.
func dividedCluster() *dashboardtest.Cluster {
	c := dashboardtest.New()
	at := dashboardtest.Epoch.Add(-time.Hour)
	c.Windows = []aggregator.Row{dashboardtest.Window(metrics.NodesName, 60, 1)}
	took := &metrics.Histogram{Buckets: map[string]float64{"1": 2}}
	c.Shares = []aggregator.SharePoint{
		{At: at, Share: aggregator.Share{Key: `a<b> "c", d`, Attempts: 1200, Wait: took, Took: took}},
		{At: at, Share: aggregator.Share{Key: "send", Attempts: 30, Failures: 4, Took: &metrics.Histogram{Buckets: map[string]float64{"60": 2}}}},
		{At: at, Share: aggregator.Share{Key: aggregator.Other, Attempts: 9}},
	}
	return c
}

func TestBreakdownPage(t *testing.T) {
	t.Parallel()
	c := dividedCluster()
	h := handlerOf(c)
	page := get(t, h, "/charts?by=kind&span=1h").Body.String()
	for _, want := range []string{
		`<a href="/charts?by=kind&amp;span=1h" aria-current="true">By kind</a>`, `<a href="/charts?by=queue&amp;span=1h">By queue</a>`,
		`<th scope="col" class="num" aria-sort="descending"><a href="/charts?by=kind&amp;sort=attempts&amp;span=1h" title="Most attempts first">Attempts</a></th>`,
		`<a href="/jobs?kind=send&amp;span=1h">send</a></td><td data-label="Attempts" class="num">30</td><td data-label="Failures" class="num"><span class="word bad">4</span></td><td data-label="Wait p50" class="num">–</td>`,
		`<td data-label="Took p50" class="num">45.00 s</td><td data-label="Took p95" class="num">58.50 s</td><td data-label="Took p99" class="num">59.70 s</td>`,
		`<a href="/jobs?kind=a%3Cb%3E&#43;%22c%22%2C&#43;d&amp;span=1h">a&lt;b&gt; &#34;c&#34;, d</a>`, `<span class="none">all others</span>`,
		"2026-11-20 11:00 UTC: a&lt;b&gt; &#34;c&#34;, d 1200 a minute\nsend 30 a minute\nall others 9 a minute", "2026-11-20 11:01 UTC: no data",
		`<h2 id="h-wait">Wait, p99</h2>`, `<path class="chart-line by n`, "/charts?by=kind&amp;span=6h", `<input type="hidden" name="by" value="kind">`,
		"forge metrics --by kind",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	sorted := get(t, h, "/charts?by=kind&sort=failures&span=1h").Body.String()
	if first, second := strings.Index(sorted, `">send</a></td>`), strings.Index(sorted, `d</a></td>`); first < 0 || first > second || !strings.Contains(sorted, `aria-sort="descending"><a href="/charts?by=kind&amp;sort=failures`) {
		t.Errorf("by failures:\n%s", sorted)
	}
	for by, want := range map[string]string{"cron": `<a href="/crons/send">`, "node": `<a href="/nodes/send">`, "queue": `<a href="/queues/send">`} {
		if page := get(t, h, "/charts?span=1h&by="+by).Body.String(); !strings.Contains(page, want) {
			t.Errorf("by %s the page lacks %s", by, want)
		}
	}
}

// Without data, with one sample, and with many keys, the page has as much as it can show.
func TestBreakdownPageIsBounded(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	if page := get(t, h, "/charts?by=node&span=1h").Body.String(); strings.Count(page, "No data for this time") != 4 || strings.Contains(page, "<table class=\"stack shares") {
		t.Errorf("without data:\n%s", page)
	}
	c.Change(func(c *dashboardtest.Cluster) {
		c.Windows = []aggregator.Row{dashboardtest.Window(metrics.NodesName, 60*24, 1)}
		for i := range 10_000 {
			c.Shares = append(c.Shares, aggregator.SharePoint{At: dashboardtest.Epoch.Add(-24 * time.Hour), Share: aggregator.Share{Key: fmt.Sprintf("kind-%d", i), Attempts: int64(10_000 - i)}})
		}
	})
	for _, span := range []string{"5m", "1h", "30d"} {
		page := get(t, h, "/charts?by=kind&span="+span).Body.String()
		if rows, lines, columns := strings.Count(page, `data-label="Attempts"`), strings.Count(page, `class="chart-line`), strings.Count(page, `class="chart-col"`); rows != aggregator.UsualKeys || lines > 4*6 || columns > 4*240 {
			t.Errorf("%s: %d rows, %d lines, %d columns", span, rows, lines, columns)
		}
	}
}

func TestMetricBreakdown(t *testing.T) {
	t.Parallel()
	c := dividedCluster()
	h := handlerOf(c)
	var got aggregator.Breakdown
	if err := json.Unmarshal(get(t, h, "/api/v1/metrics/breakdown?by=queue&sort=took&limit=2").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	value := func(v float64) *float64 { return &v }
	want := aggregator.Breakdown{
		By: "queue", From: dashboardtest.Epoch.Add(-time.Hour), To: dashboardtest.Epoch, Step: "1m",
		Items: []aggregator.BreakdownItem{
			{Key: "send", Attempts: 30, Failures: 4, Took: aggregator.Percentiles{P50: value(45), P95: value(58.5), P99: value(59.7)}},
			{
				Key: `a<b> "c", d`, Attempts: 1200, Wait: aggregator.Percentiles{P50: value(.75), P95: value(.975), P99: value(.995)},
				Took: aggregator.Percentiles{P50: value(.75), P95: value(.975), P99: value(.995)},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for asked, want := range map[string]string{
		"/api/v1/metrics/breakdown":                                                           "by must be one of cron, kind, node, queue",
		"/api/v1/metrics/breakdown?by=tag":                                                    "by must be one of cron, kind, node, queue (got",
		"/api/v1/metrics/breakdown?by=kind&sort=p99":                                          "sort must be one of attempts, failures, wait, took, key",
		"/api/v1/metrics/breakdown?by=kind&limit=0":                                           "limit must be from 1 to 100",
		"/api/v1/metrics/breakdown?by=kind&from=2026-11-20T12:00:00Z&to=2026-11-20T12:00:00Z": "from must be before to",
		"/charts?by=tag":            "by must be one of cron, kind, node, queue",
		"/charts?by=kind&sort=tags": "sort must be one of attempts, failures, wait, took, key",
	} {
		if w := get(t, h, asked); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %q", asked, w.Code, w.Body, want)
		}
	}
}
