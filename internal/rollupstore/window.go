package rollupstore

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// Step is the length of a window.
type Step time.Duration

// The steps of which windows are kept.
const (
	Minute      = Step(time.Minute)
	FiveMinutes = Step(5 * time.Minute)
	Hour        = Step(time.Hour)
)

// Steps lists them all, the finest first: each is made of the one before.
var Steps = []Step{Minute, FiveMinutes, Hour}

// String returns what the configuration calls the step.
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

// Start is the beginning of the window that holds an instant.
func (s Step) Start(at time.Time) time.Time { return at.UTC().Truncate(time.Duration(s)) }

func (s Step) seconds() int { return int(time.Duration(s).Seconds()) }

// Point is a sum of the cluster at one instant.
type Point struct {
	metrics.Sample
	At time.Time
}

// Row is what became of one series in one window.
type Row struct {
	Metric string            `json:"metric"`
	Labels map[string]string `json:"labels"`
	// At is where the window begins.
	At time.Time `json:"at"`
	// Covered says for how many seconds of the window there were values; of a
	// counter's longer windows, of those parts in which it rose.
	Covered float64 `json:"covered_seconds"`
	// Value is a gauge's mean over time, what a counter rose by, or how many
	// values a histogram was given.
	Value float64 `json:"value"`
	// Least and Greatest are a gauge's; of others they are 0.
	Least    float64 `json:"min,omitzero"`
	Greatest float64 `json:"max,omitzero"`
	// Last is the value at the end: of counters since the cluster began.
	Last float64 `json:"last"`
	// Histogram is what a histogram was given.
	Histogram *metrics.Histogram `json:"histogram,omitempty"`
}

// Counter says whether the row is of a series that only rises.
func (r Row) Counter() bool {
	return metrics.Sample{Name: r.Metric, Histogram: r.Histogram}.Counter()
}

// Quantile estimates below which value the share q of what a histogram was given
// lies; nil: it was given nothing.
func (r Row) Quantile(q float64) *float64 {
	value := r.Histogram.Quantile(q)
	if math.IsNaN(value) {
		return nil
	}
	return &value
}

// Window rolls sums up, given in the order of their times, to what became of each
// series from start on for step. The points before start say where it stood then.
// A value holds until the next of its series, but no longer than holds: then
// nobody was there to write it. newborn says that a counter which has no point
// before start began at 0, because sums of that time are there and lack it.
func Window(points []Point, start time.Time, step Step, holds time.Duration, newborn bool) []Row {
	series := map[string][]Point{}
	for _, p := range points {
		series[key(p.Name, p.Labels)] = append(series[key(p.Name, p.Labels)], p)
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

// key tells series apart.
func key(metric string, labels map[string]string) string {
	var text strings.Builder
	text.WriteString(metric)
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		text.WriteString("\x00" + label + "\x00" + labels[label])
	}
	return text.String()
}

// rise adds up by how much a counter or histogram rose. One that fell began again
// at 0.
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

// hold finds for how long there were values within the window, and of a gauge
// their mean and their extremes. The value that the window began with counts.
func (r *Row) hold(points []Point, start, end time.Time, holds time.Duration) {
	area := 0.0
	least, greatest := math.Inf(1), math.Inf(-1)
	for i, p := range points {
		until := p.At.Add(holds)
		if i+1 < len(points) && points[i+1].At.Before(until) {
			until = points[i+1].At
		}
		from, to := latest(p.At, start), earliest(until, end)
		if !to.After(from) {
			continue
		}
		r.Covered += to.Sub(from).Seconds()
		area += p.Value * to.Sub(from).Seconds()
		least, greatest, r.Last = min(least, p.Value), max(greatest, p.Value), p.Value
	}
	if !points[0].Counter() && r.Covered > 0 {
		r.Value, r.Least, r.Greatest = area/r.Covered, least, greatest
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Merge rolls windows of one step, in the order of their times, up to one of a
// longer step that begins at start.
func Merge(rows []Row, start time.Time) []Row {
	merged := map[string]Row{}
	for _, r := range rows {
		id := key(r.Metric, r.Labels)
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
