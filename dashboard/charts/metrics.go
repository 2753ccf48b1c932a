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
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// Stretch is the time range of the charts. Its windows have the width Step; several of them
// make one point.
type Stretch struct {
	Span

	Step  aggregator.Step
	Point time.Duration
}

// Stretches are the time ranges of the charts.
var Stretches = []Stretch{
	{Span{"1h", time.Hour, 4}, aggregator.Minute, time.Minute},
	{Span{"6h", 6 * time.Hour, 3}, aggregator.FiveMinutes, 5 * time.Minute},
	{Span{"24h", 24 * time.Hour, 4}, aggregator.FiveMinutes, 15 * time.Minute},
	{Span{"7d", 7 * 24 * time.Hour, 7}, aggregator.Hour, time.Hour},
	{Span{"30d", 30 * 24 * time.Hour, 6}, aggregator.Hour, 6 * time.Hour},
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
	value func(in []aggregator.Sum, of Stretch) float64
}

type chartSpec struct {
	id, name, about string
	show            func(float64) string
	lines           []lineSpec
}

// presence is a gauge that exists whenever the cluster had an aggregator. If it exists and
// a counter has no window, the counter did not change; otherwise its value is unknown.
const presence = metrics.NodesName

var chartSpecs = []chartSpec{
	{"work", "Jobs a minute", "Attempts that began, and how they ended", quantity, []lineSpec{
		{"started", "live", "forge_job_started_total", "", nil, perMinute},
		{"completed", "ok", "forge_job_finished_total", "outcome", []string{"completed"}, perMinute},
		{"failed", "bad", "forge_job_finished_total", "outcome", []string{"failed", "timed_out", "lost"}, perMinute},
	}},
	{"depth", "Queue depth", "Unfinished jobs, on average", quantity, []lineSpec{
		{"available", "live", metrics.QueueDepthName, "state", []string{"available"}, mean},
		{"running", "ok", metrics.QueueDepthName, "state", []string{"running"}, mean},
		{"to be retried", "warn", metrics.QueueDepthName, "state", []string{"retryable"}, mean},
		{"scheduled", "idle", metrics.QueueDepthName, "state", []string{"scheduled"}, mean},
	}},
	{"late", "Lateness of crons", "From a tick to the commit of its job", lengthOf, []lineSpec{
		{"half within", "ok", "forge_cron_delay_seconds", "", nil, quantile(.5)},
		{"99 % within", "warn", "forge_cron_delay_seconds", "", nil, quantile(.99)},
	}},
	{"wait", "Wait of jobs", "From due to started", lengthOf, []lineSpec{
		{"half within", "ok", "forge_job_wait_seconds", "", nil, quantile(.5)},
		{"99 % within", "warn", "forge_job_wait_seconds", "", nil, quantile(.99)},
	}},
}

func perMinute(in []aggregator.Sum, of Stretch) float64 {
	total := 0.0
	for _, sum := range in {
		total += sum.Value
	}
	return total / of.Point.Minutes()
}

// mean adds the series and averages over the windows. It needs series of a single label
// value, because several label values may have the same windows.
func mean(in []aggregator.Sum, _ Stretch) float64 {
	if len(in) == 0 {
		return math.NaN()
	}
	return in[0].Value / float64(in[0].Windows)
}

func quantile(q float64) func([]aggregator.Sum, Stretch) float64 {
	return func(in []aggregator.Sum, _ Stretch) float64 {
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
	Charts []chart
	Axis   []AxisMark
	// until is when there can be newer data to draw.
	until time.Time
}

// ChartPage caches a drawing. Pages check for changes every second, but a new point appears
// only once in a point's time.
type ChartPage struct {
	mu    sync.Mutex
	drawn Drawing
}

// NewChartPages returns an empty ChartPage for each time range, by name.
func NewChartPages() map[string]*ChartPage {
	sheets := map[string]*ChartPage{}
	for _, stretch := range Stretches {
		sheets[stretch.Name] = &ChartPage{}
	}
	return sheets
}

// Get holds the lock while it draws, because concurrent callers wait for the same drawing.
func (s *ChartPage) Get(now time.Time, draw func() (Drawing, error)) (Drawing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.drawn.until) {
		return s.drawn, nil
	}
	drawn, err := draw()
	if err == nil {
		s.drawn = drawn
	}
	return drawn, err
}

// sums reads windows of metrics that are aggregated into points of time.
type sums interface {
	Sums(ctx context.Context, q aggregator.SumQuery) ([]aggregator.Sum, error)
}

// DrawMetrics reads the metrics and draws the charts.
func DrawMetrics(ctx context.Context, history sums, of Stretch, now time.Time) (d Drawing, err error) {
	p := newPoints(now, of)
	if err = p.read(ctx, history); err != nil {
		return d, err
	}
	for _, spec := range chartSpecs {
		d.Charts = append(d.Charts, p.draw(spec))
	}
	d.Axis, d.until = p.axis(), p.nextCheck(now)
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
		sums, err := history.Sums(ctx, aggregator.SumQuery{
			Metric: metric, Label: wanted[metric], Step: p.of.Step, From: p.start, To: p.start.Add(p.of.Width), Point: p.of.Point,
		})
		if err != nil {
			return fmt.Errorf("read the history of %s: %w", metric, err)
		}
		p.sums[metric] = sums
	}
	return nil
}

// points holds the sums of windows, grouped by the points of a chart.
type points struct {
	of    Stretch
	start time.Time
	sums  map[string][]aggregator.Sum
}

// newPoints returns points that end with the last completed window.
func newPoints(now time.Time, of Stretch) *points {
	return &points{of: of, start: now.UTC().Truncate(of.Point).Add(-of.Width), sums: map[string][]aggregator.Sum{}}
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
		if len(in) > 0 || len(present[i]) > 0 {
			values[i] = line.value(in, p.of)
		}
	}
	return values
}

func (p *points) axis() (marks []AxisMark) {
	for i := range p.of.steps {
		back := p.of.Width * time.Duration(p.of.steps-i) / time.Duration(p.of.steps)
		marks = append(marks, AxisMark{X: format.Percent(float64(i) / float64(p.of.steps)), Text: "−" + short(back), Anchor: "start"})
	}
	return append(marks, AxisMark{X: "100%", Text: "now", Anchor: "end"})
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
