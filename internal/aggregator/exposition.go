package aggregator

import (
	"context"
	"maps"
	"math"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Exposition returns a function that reads the cluster's totals, which are the same
// on every node, and returns a handler that serves them in Prometheus' text format.
// series has the descriptions of the metrics.
func Exposition(db postgres.DB, series []metrics.Series) func(ctx context.Context) (http.Handler, error) {
	help := map[string]string{}
	for _, s := range series {
		help[s.Name] = s.Help
	}
	return func(ctx context.Context) (http.Handler, error) {
		points, err := NewStore(db).Latest(ctx)
		if err != nil {
			return nil, err
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(exposition{points, help})
		return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
	}
}

// exposition collects points that were read before.
type exposition struct {
	points []Point
	help   map[string]string
}

// Describe describes nothing: the series are those in the database.
func (exposition) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (e exposition) Collect(out chan<- prometheus.Metric) {
	for _, point := range e.points {
		names := slices.Sorted(maps.Keys(point.Labels))
		values := make([]string, len(names))
		for i, name := range names {
			values[i] = point.Labels[name]
		}
		kind := prometheus.GaugeValue
		if point.Counter() {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(point.Name, e.help[point.Name], names, nil)
		metric, err := prometheus.NewConstMetric(desc, kind, point.Value, values...)
		if h := point.Histogram; h != nil {
			metric, err = prometheus.NewConstHistogram(desc, uint64(point.Value), h.Sum, bounds(h), values...)
		}
		if err != nil {
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		out <- metric
	}
}

func bounds(h *metrics.Histogram) map[float64]uint64 {
	buckets := map[float64]uint64{}
	for _, b := range h.Cumulative() {
		if !math.IsInf(b.Bound, 1) {
			buckets[b.Bound] = uint64(b.Count)
		}
	}
	return buckets
}
