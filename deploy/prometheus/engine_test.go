package prometheus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// step is the time between two samples of a series.
const step = 10 * time.Second

// fires evaluates an expression five minutes after the series began; an alert
// fires when its result is not empty.
func fires(t *testing.T, expr, series string) bool {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
	})
	defer func() { _ = engine.Close() }()
	query, err := engine.NewInstantQuery(t.Context(), load(t, series), nil, expr, time.Unix(0, 0).Add(5*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	vector, err := query.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatal(err)
	}
	return len(vector) > 0
}

// load holds series in memory: one a line, in the notation of Prometheus' own
// tests.
func load(t *testing.T, text string) storage.Queryable {
	t.Helper()
	var all []promql.Series
	for line := range strings.Lines(text) {
		metric, values, err := parser.ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		series := promql.Series{Metric: metric}
		for i, value := range values {
			at := time.Duration(i) * step
			series.Floats = append(series.Floats, promql.FPoint{T: at.Milliseconds(), F: value.Value})
		}
		all = append(all, series)
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return &seriesSet{left: matching(all, matchers)}
		},
	}}
}

func matching(all []promql.Series, matchers []*labels.Matcher) []promql.Series {
	var matched []promql.Series
next:
	for _, series := range all {
		for _, matcher := range matchers {
			if !matcher.Matches(series.Metric.Get(matcher.Name)) {
				continue next
			}
		}
		matched = append(matched, series)
	}
	return matched
}

// seriesSet is a storage.SeriesSet over series in memory.
type seriesSet struct {
	left []promql.Series
	now  promql.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.now, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return promql.NewStorageSeries(s.now) }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
