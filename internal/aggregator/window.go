package aggregator

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// Step is the length of a window.
type Step time.Duration

// Steps of the stored windows.
const (
	Minute      = Step(time.Minute)
	FiveMinutes = Step(5 * time.Minute)
	Hour        = Step(time.Hour)
)

// Steps lists all steps, the finest first: each is computed from the previous one.
var Steps = []Step{Minute, FiveMinutes, Hour}

// String returns the step's name in the configuration.
func (s Step) String() string {
	switch s {
	case Minute:
		return "1m"
	case FiveMinutes:
		return "5m"
	case Hour:
		return "1h"
	default:
		return time.Duration(s).String()
	}
}

// Start returns the beginning of the window that contains an instant.
func (s Step) Start(at time.Time) time.Time { return at.UTC().Truncate(time.Duration(s)) }

func (s Step) seconds() int { return int(time.Duration(s).Seconds()) }

// Row is the rollup of one series in one window.
type Row struct {
	Metric string            `json:"metric"`
	Labels map[string]string `json:"labels"`
	// At is when the window begins.
	At time.Time `json:"at"`
	// Covered is for how many seconds of the window there were values; for longer
	// windows of a counter, the seconds of those parts in which it increased.
	Covered float64 `json:"covered_seconds"`
	// Value is a gauge's mean over time, the increase of a counter, or the number
	// of observations of a histogram.
	Value float64 `json:"value"`
	// Least and Greatest are set for gauges only.
	Least    float64 `json:"min,omitzero"`
	Greatest float64 `json:"max,omitzero"`
	// Last is the value at the end; for counters, the total since the cluster
	// began.
	Last float64 `json:"last"`
	// Histogram holds the observations of a histogram.
	Histogram *metrics.Histogram `json:"histogram,omitempty"`
}

func (r Row) sample() metrics.Sample {
	return metrics.Sample{Name: r.Metric, Labels: r.Labels, Histogram: r.Histogram}
}

// Counter reports whether the row is of a series that only increases.
func (r Row) Counter() bool { return r.sample().Counter() }

// Quantile estimates the value below which the share q of a histogram's
// observations lies; nil if there are none.
func (r Row) Quantile(q float64) *float64 {
	value := r.Histogram.Quantile(q)
	if math.IsNaN(value) {
		return nil
	}
	return &value
}

// Window computes the rows of the window at start from sums in the order of their
// times. The points before start give the initial values. A value is valid until
// the next point of its series, but no longer than holds: after that, no leader
// wrote sums. newborn means that a counter without a point before start began at 0,
// because sums of that time exist without it.
func Window(points []Point, start time.Time, step Step, holds time.Duration, newborn bool) []Row {
	series := map[string][]Point{}
	for _, p := range points {
		key := seriesKey(p.Sample)
		series[key] = append(series[key], p)
	}
	end := start.Add(time.Duration(step))
	var rows []Row
	for _, name := range slices.Sorted(maps.Keys(series)) {
		of := series[name]
		row := Row{Metric: of[0].Name, Labels: of[0].Labels, At: start}
		row.hold(of, start, end, holds)
		if of[0].Counter() {
			row.rise(of, start, newborn)
		}
		if row.Covered > 0 && (row.Value != 0 || !row.Counter()) {
			rows = append(rows, row)
		}
	}
	return rows
}

// rise adds up the increases of a counter or histogram. A value that decreased has
// restarted at 0.
func (r *Row) rise(points []Point, start time.Time, newborn bool) {
	for i, p := range points {
		if p.At.Before(start) || i == 0 && !newborn {
			continue
		}
		var before metrics.Sample
		if i > 0 {
			before = points[i-1].Sample
		}
		if p.Value < before.Value {
			before = metrics.Sample{}
		}
		r.Value += p.Value - before.Value
		if p.Histogram != nil {
			r.Histogram = r.Histogram.Plus(p.Histogram.Since(before.Histogram))
		}
	}
}

// hold computes how long there were values within the window, and for a gauge their
// mean, minimum and maximum. The initial value of the window counts.
func (r *Row) hold(points []Point, start, end time.Time, holds time.Duration) {
	area := 0.0
	least, greatest := math.Inf(1), math.Inf(-1)
	for i, p := range points {
		until := p.At.Add(holds)
		if i+1 < len(points) && points[i+1].At.Before(until) {
			until = points[i+1].At
		}
		valid := min(until.Sub(start), end.Sub(start)) - max(p.At.Sub(start), 0)
		if valid <= 0 {
			continue
		}
		r.Covered += valid.Seconds()
		area += p.Value * valid.Seconds()
		least, greatest, r.Last = min(least, p.Value), max(greatest, p.Value), p.Value
	}
	if !points[0].Counter() && r.Covered > 0 {
		r.Value, r.Least, r.Greatest = area/r.Covered, least, greatest
	}
}

// Merge merges windows of one step, in the order of their times, into one of a
// longer step that begins at start.
func Merge(rows []Row, start time.Time) []Row {
	merged := map[string]Row{}
	for _, r := range rows {
		id := seriesKey(r.sample())
		sum, ok := merged[id]
		switch {
		case !ok:
			sum = r
		case r.Counter():
			sum.Value += r.Value
			sum.Covered += r.Covered
			sum.Histogram = sum.Histogram.Plus(r.Histogram)
		default:
			sum.Value = (sum.Value*sum.Covered + r.Value*r.Covered) / (sum.Covered + r.Covered)
			sum.Covered += r.Covered
			sum.Least, sum.Greatest = min(sum.Least, r.Least), max(sum.Greatest, r.Greatest)
		}
		sum.At, sum.Last = start, r.Last
		merged[id] = sum
	}
	all := make([]Row, 0, len(merged))
	for _, id := range slices.Sorted(maps.Keys(merged)) {
		all = append(all, merged[id])
	}
	return all
}
