package charts

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// MetricSpans are the widths of charts of metrics that a page offers, shortest first.
var MetricSpans = Spans[2:]

// stretch is how finely the charts of a width are drawn. The aggregator's windows have the
// width Step; several of them make one point.
type stretch struct {
	Width time.Duration
	Step  aggregator.Step
	Point time.Duration
}

// stretches are for charts up to their widths.
var stretches = []stretch{
	{2 * time.Hour, aggregator.Minute, time.Minute},
	{12 * time.Hour, aggregator.FiveMinutes, 5 * time.Minute},
	{2 * 24 * time.Hour, aggregator.FiveMinutes, 15 * time.Minute},
	{10 * 24 * time.Hour, aggregator.Hour, time.Hour},
	{40 * 24 * time.Hour, aggregator.Hour, 6 * time.Hour},
	{200 * 24 * time.Hour, aggregator.Hour, 24 * time.Hour},
	{window.Longest, aggregator.Hour, 30 * 24 * time.Hour},
}

// stretchOf returns how to draw charts of a width from windows of at least a step.
func stretchOf(width time.Duration, least aggregator.Step) stretch {
	i := slices.IndexFunc(stretches, func(s stretch) bool { return width <= s.Width && s.Step >= least })
	s := stretches[max(i, 0)]
	s.Width = width
	return s
}

// lineSpec describes a line of a chart.
type lineSpec struct {
	name, tone string
	metric     string
	// The line shows the series whose label has one of the values. A nil values means all
	// series.
	label  string
	values []string
	// value computes a point from the sums of its windows.
	value func(in []aggregator.Sum, of stretch) float64
}

type chartSpec struct {
	id, name, about string
	// show formats a value, unit follows it; empty: show includes the unit.
	show  func(float64) string
	unit  string
	lines []lineSpec
}

// withUnit formats a value with its unit.
func (s chartSpec) withUnit(v float64) string {
	if s.unit == "" {
		return s.show(v)
	}
	return s.show(v) + " " + s.unit
}

// presence is a gauge that exists whenever the cluster had an aggregator. If it exists and
// a counter has no window, the counter did not change; otherwise its value is unknown.
const presence = metrics.NodesName

var chartSpecs = []chartSpec{
	{"work", "Jobs a minute", "Attempts that began, and how they ended", quantity, "a minute", []lineSpec{
		{"started", "live", "forge_job_started_total", "", nil, perMinute},
		{"completed", "ok", "forge_job_finished_total", "outcome", []string{"completed"}, perMinute},
		{"failed", "bad", "forge_job_finished_total", "outcome", []string{"failed", "timed_out", "lost"}, perMinute},
	}},
	{"depth", "Queue depth", "Unfinished jobs, on average", quantity, "jobs", []lineSpec{
		{"available", "live", metrics.QueueDepthName, "state", []string{"available"}, mean},
		{"running", "ok", metrics.QueueDepthName, "state", []string{"running"}, mean},
		{"to be retried", "warn", metrics.QueueDepthName, "state", []string{"retryable"}, mean},
		{"scheduled", "idle", metrics.QueueDepthName, "state", []string{"scheduled"}, mean},
	}},
	{"late", "Lateness of crons", "From a tick to the commit of its job", lengthOf, "", []lineSpec{
		{"p50", "ok", "forge_cron_delay_seconds", "", nil, quantile(.5)},
		{"p95", "live", "forge_cron_delay_seconds", "", nil, quantile(.95)},
		{"p99", "warn", "forge_cron_delay_seconds", "", nil, quantile(.99)},
	}},
	{"wait", "Wait of jobs", "From due to started", lengthOf, "", []lineSpec{
		{"p50", "ok", "forge_job_wait_seconds", "", nil, quantile(.5)},
		{"p95", "live", "forge_job_wait_seconds", "", nil, quantile(.95)},
		{"p99", "warn", "forge_job_wait_seconds", "", nil, quantile(.99)},
	}},
}

func perMinute(in []aggregator.Sum, of stretch) float64 {
	total := 0.0
	for _, sum := range in {
		total += sum.Value
	}
	return total / of.Point.Minutes()
}

// mean adds the series and averages over the windows. It needs series of a single label
// value, because several label values may have the same windows.
func mean(in []aggregator.Sum, _ stretch) float64 {
	if len(in) == 0 {
		return math.NaN()
	}
	return in[0].Value / float64(in[0].Windows)
}

func quantile(q float64) func([]aggregator.Sum, stretch) float64 {
	return func(in []aggregator.Sum, _ stretch) float64 {
		var all *metrics.Histogram
		for _, sum := range in {
			all = all.Plus(sum.Histogram)
		}
		if all == nil {
			return math.NaN()
		}
		return all.Quantile(q)
	}
}

// Drawing holds the charts of a time range.
type Drawing struct {
	Extent

	Charts []chart
	Axis   []AxisMark
	// Breakdown has the values of the charts of DrawBreakdown as a table.
	Breakdown aggregator.Breakdown
	// until is when there can be newer data to draw.
	until time.Time
}

// ChartPages caches the drawings of windows. Pages check for changes every second, but a new
// point appears only once in a point's time.
type ChartPages struct {
	mu    sync.Mutex
	pages map[string]*chartPage
}

type chartPage struct {
	mu    sync.Mutex
	drawn Drawing
}

// maxChartPages bounds the cached drawings.
const maxChartPages = 64

// Get returns the drawing of a page, and draws it if there can be newer data. Concurrent
// callers wait for the same drawing.
func (s *ChartPages) Get(page string, now time.Time, draw func() (Drawing, error)) (Drawing, error) {
	p := s.page(page)
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.drawn.until) {
		return p.drawn, nil
	}
	drawn, err := draw()
	if err == nil {
		p.drawn = drawn
	}
	return drawn, err
}

func (s *ChartPages) page(name string) *chartPage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages == nil || len(s.pages) >= maxChartPages && s.pages[name] == nil {
		s.pages = map[string]*chartPage{}
	}
	if s.pages[name] == nil {
		s.pages[name] = &chartPage{}
	}
	return s.pages[name]
}

// sums reads windows of metrics that are aggregated into points of time.
type sums interface {
	Sums(ctx context.Context, q aggregator.SumQuery) ([]aggregator.Sum, error)
}

// DrawMetrics reads the metrics of a window and draws the charts. It draws a time whose fine
// windows are gone from coarser ones.
func DrawMetrics(ctx context.Context, history sums, w window.Window, now time.Time) (Drawing, error) {
	return drawCharts(chartSpecs, w, now, func(p *points) error { return p.read(ctx, history) })
}

// drawCharts draws charts of a window from what read reads.
func drawCharts(specs []chartSpec, w window.Window, now time.Time, read func(*points) error) (d Drawing, err error) {
	var p *points
	for _, least := range aggregator.Steps {
		p = newPoints(w, stretchOf(w.Width(), least))
		if err = read(p); err != nil {
			return d, err
		}
		if w.Live || len(p.sums[presence]) > 0 {
			break
		}
	}
	for _, spec := range specs {
		d.Charts = append(d.Charts, p.draw(spec))
	}
	scale := Scale{p.start, p.of.Width}
	d.Extent, d.Axis, d.until = scale.extent(w.Zone), scale.axis(w), p.nextCheck(now)
	if !w.Live {
		d.until = now.Add(maxRecheck)
	}
	return d, nil
}

// read reads each metric that a chart shows once, by the label of its lines.
func (p *points) read(ctx context.Context, history sums) error {
	wanted := map[string]string{presence: ""}
	for _, spec := range chartSpecs {
		for _, line := range spec.lines {
			wanted[line.metric] = line.label
		}
	}
	for _, metric := range slices.Sorted(maps.Keys(wanted)) {
		if err := p.readMetric(ctx, history, metric, wanted[metric], nil); err != nil {
			return err
		}
	}
	return nil
}

// readMetric reads some series of a metric, or all for nil.
func (p *points) readMetric(ctx context.Context, history sums, metric, label string, series []map[string]string) error {
	sums, err := history.Sums(ctx, aggregator.SumQuery{
		Metric: metric, Label: label, Series: series, Step: p.of.Step, From: p.start, To: p.start.Add(p.of.Width), Point: p.of.Point,
	})
	if err != nil {
		return fmt.Errorf("read the history of %s: %w", metric, err)
	}
	p.sums[metric] = sums
	return nil
}

// points holds the sums of windows, grouped by the points of a chart.
type points struct {
	of    stretch
	start time.Time
	zone  *time.Location
	sums  map[string][]aggregator.Sum
	// folded are the points at which not the shares of all keys were kept.
	folded map[time.Time]bool
}

// newPoints returns points that cover a window. Those of one that ends now end with the last
// completed point.
func newPoints(w window.Window, of stretch) *points {
	p := &points{of: of, start: w.From.UTC().Truncate(of.Point), zone: w.Zone, sums: map[string][]aggregator.Sum{}, folded: map[time.Time]bool{}}
	if w.Live {
		p.of.Width = max(of.Width.Truncate(of.Point), of.Point)
		p.start = w.To.UTC().Truncate(of.Point).Add(-p.of.Width)
		return p
	}
	p.of.Width = (w.To.Sub(p.start) + of.Point - 1).Truncate(of.Point)
	return p
}

// maxRecheck is the maximum time between two checks for a window that is not recorded yet.
const maxRecheck = time.Minute

// nextCheck returns when there can be newer data to draw: when the next point is complete
// or, while the newest window is not recorded yet, a moment later.
func (p *points) nextCheck(now time.Time) time.Time {
	newest := p.start.Add(p.of.Width - time.Duration(p.of.Step))
	if slices.ContainsFunc(p.sums[presence], func(sum aggregator.Sum) bool { return !sum.Newest.Before(newest) }) {
		return p.start.Add(p.of.Width + p.of.Point)
	}
	return now.Add(min(p.of.Point/12, maxRecheck))
}

func (p *points) count() int { return int(p.of.Width / p.of.Point) }

func (p *points) at(i int) time.Time { return p.start.Add(time.Duration(i) * p.of.Point) }

// group assigns the sums that match to their points.
func (p *points) group(metric string, want func(aggregator.Sum) bool) [][]aggregator.Sum {
	groups := make([][]aggregator.Sum, p.count())
	for _, sum := range p.sums[metric] {
		if want(sum) {
			i := int(sum.At.Sub(p.start) / p.of.Point)
			groups[i] = append(groups[i], sum)
		}
	}
	return groups
}

// values returns the values of a line; NaN means unknown.
func (p *points) values(line lineSpec) []float64 {
	present := p.group(presence, func(aggregator.Sum) bool { return true })
	groups := p.group(line.metric, func(sum aggregator.Sum) bool {
		return line.label == "" || slices.Contains(line.values, sum.Label)
	})
	values := make([]float64, len(groups))
	for i, in := range groups {
		values[i] = math.NaN()
		hidden := line.label == keyLabel && p.folded[p.at(i)]
		if len(in) > 0 || len(present[i]) > 0 && !hidden {
			values[i] = line.value(in, p.of)
		}
	}
	return values
}

func quantity(v float64) string {
	switch {
	case v == math.Trunc(v) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

func lengthOf(seconds float64) string {
	if seconds == 0 {
		return "0"
	}
	return format.Precise(time.Duration(seconds * float64(time.Second)))
}
