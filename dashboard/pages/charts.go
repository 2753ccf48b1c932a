package pages

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
)

type chartsBody struct {
	base
	charts.Drawing

	Time timeControl
	// Divisions lead to the totals and to the breakdowns. By is the dimension of the breakdown;
	// empty for the totals.
	Divisions []tab
	By        string
	Heads     []head
	Rows      []shareRow
}

// shareRow is a row of a breakdown.
type shareRow struct {
	Key, Path          string
	Attempts, Failures string
	Failed             bool
	Wait, Took         [3]string
}

func (s *Pages) loadCharts(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	by, sort := req.Values.Get("by"), req.Values.Get("sort")
	for _, param := range []struct {
		name, value string
		known       []string
	}{{"by", by, metrics.Dimensions}, {"sort", sort, aggregator.BreakdownOrders}} {
		if param.value != "" && !slices.Contains(param.known, param.value) {
			return nil, web.BadRequest(fmt.Errorf("%s must be one of %s", param.name, strings.Join(param.known, ", ")))
		}
	}
	shown, err := s.window(req, facts.now, time.Hour)
	if err != nil {
		return nil, err
	}
	drawn, err := s.chartPages.Get(web.Encode(append(shown.Pairs(), "by", by)...), facts.now, func() (charts.Drawing, error) {
		if by == "" {
			return charts.DrawMetrics(ctx, s.Source.History, shown, facts.now)
		}
		return charts.DrawBreakdown(ctx, s.Source.History, by, shown, facts.now)
	})
	if err != nil {
		return nil, err
	}
	b := &chartsBody{
		base: base{name: "Metrics", beat: s.pulseOf(facts)}, Drawing: drawn, By: by,
		Time:      s.timeControl(shown, facts.now, "/charts", "", charts.MetricSpans, []string{"by", by, "sort", sort}),
		Divisions: divisions(by, shown),
	}
	if by != "" {
		b.Heads = shareHeads(by, sort, shown)
		b.Rows = shareRows(drawn.Breakdown.Sorted(sort), shown)
	}
	return b, nil
}

// chartsPath is the address of the page in a window.
func chartsPath(w window.Window, more ...string) string {
	return "/charts?" + web.Encode(append(more, w.Pairs()...)...)
}

func divisions(by string, w window.Window) []tab {
	tabs := []tab{{Name: "Totals", Path: chartsPath(w), Current: by == ""}}
	for _, dimension := range metrics.Dimensions {
		tabs = append(tabs, tab{Name: "By " + dimension, Path: chartsPath(w, "by", dimension), Current: by == dimension})
	}
	return tabs
}

func shareHeads(by, sort string, w window.Window) []head {
	columns := []head{{Text: format.Capital(by)}}
	for _, text := range []string{"Attempts", "Failures", "Wait p50", "Wait p95", "Wait p99", "Took p50", "Took p95", "Took p99"} {
		columns = append(columns, head{Text: text, Class: "num"})
	}
	if sort == "" {
		sort = aggregator.BreakdownOrders[0]
	}
	return heads(columns, map[string]sortBy{
		format.Capital(by): {"key", "ascending", "By name"},
		"Attempts":         {"attempts", "descending", "Most attempts first"},
		"Failures":         {"failures", "descending", "Most failures first"},
		"Wait p99":         {"wait", "descending", "Longest wait first"},
		"Took p99":         {"took", "descending", "Longest first"},
	}, sort, func(order string) string { return chartsPath(w, "by", by, "sort", order) })
}

func shareRows(b aggregator.Breakdown, w window.Window) []shareRow {
	rows := make([]shareRow, len(b.Items))
	for i, item := range b.Items {
		rows[i] = shareRow{
			Key: item.Key, Path: keyPath(b.By, item.Key, w), Failed: item.Failures > 0,
			Attempts: humanize.Comma(item.Attempts), Failures: humanize.Comma(item.Failures),
			Wait: percentiles(item.Wait), Took: percentiles(item.Took),
		}
		if item.Key == aggregator.Other {
			rows[i].Key, rows[i].Path = charts.OtherKeys, ""
		}
	}
	return rows
}

// keyPath is the address of a cron, queue or node, or of the jobs of a kind in a window.
func keyPath(by, key string, w window.Window) string {
	switch by {
	case "cron":
		return CronPath(key)
	case "queue":
		return queuePath(key)
	case "node":
		return nodePath(key)
	default:
		return "/jobs?" + web.Encode(append([]string{by, key}, w.Pairs()...)...)
	}
}

func percentiles(p aggregator.Percentiles) (texts [3]string) {
	for i, seconds := range []*float64{p.P50, p.P95, p.P99} {
		texts[i] = "–"
		if seconds != nil {
			texts[i] = format.Precise(time.Duration(*seconds * float64(time.Second)))
		}
	}
	return texts
}
