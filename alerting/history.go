package alerting

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// history holds, in memory, the totals that conditions use. It is a storage.Queryable for
// Prometheus' engine.
type history struct {
	series map[string]*promql.Series // by labels
	last   int64                     // the instant of the newest totals, in ms; 0: none
}

func newHistory() *history { return &history{series: map[string]*promql.Series{}} }

// add appends the totals of one instant. A series missing from them has ended. A counter
// that appears was 0 before: the cluster's totals leave out counters at 0, and otherwise
// the first event would not count as an increase.
func (h *history) add(at time.Time, totals []metrics.Sample) {
	now := at.UnixMilli()
	if now <= h.last {
		return
	}
	for _, sample := range totals {
		for _, part := range spread(sample) {
			key := string(part.labels.Bytes(nil))
			s := h.series[key]
			if s == nil {
				s = &promql.Series{Metric: part.labels}
				if sample.Counter() && h.last > 0 {
					s.Floats = append(s.Floats, promql.FPoint{T: h.last})
				}
				h.series[key] = s
			}
			s.Floats = append(s.Floats, promql.FPoint{T: now, F: part.value})
		}
	}
	for _, s := range h.series {
		if end := s.Floats[len(s.Floats)-1]; end.T < now && !value.IsStaleNaN(end.F) {
			s.Floats = append(s.Floats, promql.FPoint{T: now, F: math.Float64frombits(value.StaleNaN)})
		}
	}
	h.last = now
}

// forget drops samples older than an instant.
func (h *history) forget(before time.Time) {
	from := before.UnixMilli()
	for key, s := range h.series {
		old := 0
		for old < len(s.Floats) && s.Floats[old].T < from {
			old++
		}
		// The remaining samples move to the front now and then, so that memory is reused.
		s.Floats = s.Floats[old:]
		if len(s.Floats) == 0 {
			delete(h.series, key)
		}
	}
}

// part is one of the Prometheus series that represent a sample.
type part struct {
	labels labels.Labels
	value  float64
}

// spread converts a sample to Prometheus' form: a histogram becomes several series.
func spread(sample metrics.Sample) []part {
	h := sample.Histogram
	if h == nil {
		return []part{{labelsOf(sample, "", ""), sample.Value}}
	}
	parts := []part{{labelsOf(sample, "_sum", ""), h.Sum}, {labelsOf(sample, "_count", ""), sample.Value}}
	for _, bucket := range h.Full() {
		bound := strconv.FormatFloat(bucket.Bound, 'g', -1, 64)
		parts = append(parts, part{labelsOf(sample, "_bucket", bound), bucket.Count})
	}
	return parts
}

func labelsOf(sample metrics.Sample, suffix, bound string) labels.Labels {
	all := maps.Clone(sample.Labels)
	if all == nil {
		all = map[string]string{}
	}
	all[model.MetricNameLabel] = sample.Name + suffix
	if bound != "" {
		all[labels.BucketLabel] = bound
	}
	return labels.FromMap(all)
}

// Querier is part of storage.Queryable.
func (h *history) Querier(_, _ int64) (storage.Querier, error) { return querier{h}, nil }

type querier struct{ *history }

// Select is part of storage.Querier.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{}
next:
	for _, key := range slices.Sorted(maps.Keys(q.series)) {
		for _, m := range matchers {
			if !m.Matches(q.series[key].Metric.Get(m.Name)) {
				continue next
			}
		}
		set.left = append(set.left, *q.series[key])
	}
	return set
}

// LabelValues is part of storage.Querier; the engine does not call it.
func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames is part of storage.Querier; the engine does not call it.
func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close is part of storage.Querier.
func (querier) Close() error { return nil }

// seriesSet is a storage.SeriesSet over series in memory.
type seriesSet struct {
	left []promql.Series
	now  promql.Series
}

// Next is part of storage.SeriesSet.
func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.now, s.left = s.left[0], s.left[1:]
	return true
}

// At is part of storage.SeriesSet.
func (s *seriesSet) At() storage.Series { return promql.NewStorageSeries(s.now) }

// Err is part of storage.SeriesSet.
func (*seriesSet) Err() error { return nil }

// Warnings is part of storage.SeriesSet.
func (*seriesSet) Warnings() annotations.Annotations { return nil }
