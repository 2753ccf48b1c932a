package aggregator_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const holds = 75 * time.Second

// at returns a point of a series some seconds after noon.
func at(seconds float64, metric string, value float64) aggregator.Point {
	return aggregator.Point{
		Sample: metrics.Sample{Name: metric, Value: value},
		At:     noon.Add(time.Duration(seconds * float64(time.Second))),
	}
}

func given(p aggregator.Point, h metrics.Histogram) aggregator.Point {
	p.Histogram = &h
	p.Value = h.Count()
	return p
}

func TestWindow(t *testing.T) {
	t.Parallel()
	const gauge, counter, times = "g", "c_total", "h_seconds"
	for name, test := range map[string]struct {
		points []aggregator.Point
		born   bool
		want   []aggregator.Row
	}{
		"nothing": {},
		"a gauge's mean is over time, not over points": {
			points: []aggregator.Point{at(-30, gauge, 2), at(45, gauge, 10), at(46, gauge, 10)},
			want:   []aggregator.Row{{Covered: 60, Value: (2*45 + 10*15) / 60.0, Least: 2, Greatest: 10, Last: 10}},
		},
		"what another replaced before the window is not its least": {
			points: []aggregator.Point{at(-30, gauge, 0), at(0, gauge, 5), at(30, gauge, 7)},
			want:   []aggregator.Row{{Covered: 60, Value: 6, Least: 5, Greatest: 7, Last: 7}},
		},
		"nobody there for a while": {
			points: []aggregator.Point{at(-1000, gauge, 9), at(50, gauge, 3)},
			want:   []aggregator.Row{{Covered: 10, Value: 3, Least: 3, Greatest: 3, Last: 3}},
		},
		"a value ends when nobody writes it again": {
			points: []aggregator.Point{at(-45, gauge, 4)},
			want:   []aggregator.Row{{Covered: 30, Value: 4, Least: 4, Greatest: 4, Last: 4}},
		},
		"a counter rises from where it stood": {
			points: []aggregator.Point{at(-10, counter, 100), at(20, counter, 103), at(50, counter, 110)},
			want:   []aggregator.Row{{Covered: 60, Value: 10, Last: 110}},
		},
		"a counter that did not rise": {
			points: []aggregator.Point{at(-10, counter, 100), at(20, counter, 100)},
		},
		"a counter that fell began again": {
			points: []aggregator.Point{at(-10, counter, 100), at(20, counter, 105), at(40, counter, 3)},
			want:   []aggregator.Row{{Covered: 60, Value: 8, Last: 3}},
		},
		"a counter that is new began at 0": {
			points: []aggregator.Point{at(20, counter, 4)}, born: true,
			want: []aggregator.Row{{Covered: 40, Value: 4, Last: 4}},
		},
		"a counter of which nobody knows where it stood": {
			points: []aggregator.Point{at(20, counter, 4), at(30, counter, 5)},
			want:   []aggregator.Row{{Covered: 40, Value: 1, Last: 5}},
		},
		"a histogram": {
			points: []aggregator.Point{
				given(at(-10, times, 0), metrics.Histogram{Sum: 2, Buckets: map[string]float64{"1": 4}}),
				given(at(10, times, 0), metrics.Histogram{Sum: 12, Buckets: map[string]float64{"1": 5, "10": 1}}),
			},
			want: []aggregator.Row{{
				Covered: 60, Value: 2, Last: 6,
				Histogram: &metrics.Histogram{Sum: 10, Buckets: map[string]float64{"1": 1, "10": 1}},
			}},
		},
		"a histogram that began again": {
			points: []aggregator.Point{
				given(at(-10, times, 0), metrics.Histogram{Sum: 20, Buckets: map[string]float64{"1": 4}}),
				given(at(10, times, 0), metrics.Histogram{Sum: 3, Buckets: map[string]float64{"10": 1}}),
			},
			want: []aggregator.Row{{
				Covered: 60, Value: 1, Last: 1,
				Histogram: &metrics.Histogram{Sum: 3, Buckets: map[string]float64{"10": 1}},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := aggregator.Window(test.points, noon, aggregator.Minute, holds, test.born)
			for i := range test.want {
				test.want[i].Metric, test.want[i].At = test.points[0].Name, noon
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Merging five windows has the same result as one window of five times the length.
func TestMergeEqualsLongerWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var points []aggregator.Point
		total := 0.0
		for second := -15; second < 300; second += 15 {
			if rapid.Bool().Draw(t, "restart") && rapid.Bool().Draw(t, "really") {
				total = 0
			}
			total += float64(rapid.IntRange(0, 3).Draw(t, "rise"))
			h := metrics.Histogram{Sum: total, Buckets: map[string]float64{}}
			if total > 0 {
				h.Buckets["1"] = total
			}
			points = append(points, at(float64(second), "g", float64(rapid.IntRange(-5, 5).Draw(t, "level"))),
				at(float64(second), "c_total", total), given(at(float64(second), "h_seconds", 0), h))
		}
		var minutes []aggregator.Row
		for start := noon; start.Before(noon.Add(5 * time.Minute)); start = start.Add(time.Minute) {
			var seen []aggregator.Point
			for _, p := range points {
				if !p.At.Before(start.Add(-holds)) && p.At.Before(start.Add(time.Minute)) {
					seen = append(seen, p)
				}
			}
			minutes = append(minutes, aggregator.Window(seen, start, aggregator.Minute, holds, true)...)
		}
		want := aggregator.Window(points, noon, aggregator.FiveMinutes, holds, true)
		got := aggregator.Merge(minutes, noon)
		ignore := cmp.Options{
			cmpopts.EquateApprox(0, 1e-9),
			// A counter that does not change has no window there.
			cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Covered" }, cmp.Ignore()),
			cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Last" }, cmp.Ignore()),
		}
		if diff := cmp.Diff(want, got, ignore); diff != "" {
			t.Fatalf("(-at once +merged):\n%s", diff)
		}
	})
}

func TestSteps(t *testing.T) {
	t.Parallel()
	for stretch, want := range map[time.Duration]aggregator.Step{
		time.Hour: aggregator.Minute, 24 * time.Hour: aggregator.Minute, 26 * time.Hour: aggregator.FiveMinutes,
		5 * 24 * time.Hour: aggregator.FiveMinutes, 90 * 24 * time.Hour: aggregator.Hour,
	} {
		if got := aggregator.StepFor(stretch); got != want {
			t.Errorf("StepFor(%s) = %s, want %s", stretch, got, want)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	h := metrics.Histogram{Buckets: map[string]float64{"1": 10, "2.5": 10, "+Inf": 1}}
	for q, want := range map[float64]float64{0.25: .5 + (1-.5)*5.25/10, 0.5: 1 + 1.5*.5/10, 0.99: 300} {
		if got := h.Quantile(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("Quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := (&metrics.Histogram{}).Quantile(.5); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}
