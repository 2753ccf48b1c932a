package aggregator

import (
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// Handler serves the cluster's totals in Prometheus' text format: the same on
// every node, from the database. series explain the metrics.
func Handler(db Queryer, series []metrics.Series, logger *slog.Logger) http.Handler {
	help := map[string]string{}
	for _, s := range series {
		help[s.Name] = s.Help
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		points, err := Latest(r.Context(), db)
		if err != nil {
			logger.WarnContext(r.Context(), "cluster metrics not served", "error", err)
			http.Error(w, "the cluster's metrics cannot be read now", http.StatusServiceUnavailable)
			return
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(exposition{points, help})
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

// exposition collects points that were read before.
type exposition struct {
	points []Point
	help   map[string]string
}

// Describe names nothing: the series are those that the database holds.
func (exposition) Describe(chan<- *prometheus.Desc) {}

// Collect is part of prometheus.Collector.
func (e exposition) Collect(out chan<- prometheus.Metric) {
	for _, point := range e.points {
		names := slices.Sorted(maps.Keys(point.Labels))
		values := make([]string, len(names))
		for i, name := range names {
			values[i] = point.Labels[name]
		}
		kind := prometheus.GaugeValue
		if (metrics.Sample{Name: point.Metric}).Counter() {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(point.Metric, e.help[point.Metric], names, nil)
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
