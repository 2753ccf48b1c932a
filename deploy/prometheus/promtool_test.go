package prometheus_test

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// promtool runs "promtool check" and fails the test if it objects.
func promtool(t *testing.T, input io.Reader, args ...string) {
	t.Helper()
	program := pgtest.Program(t, "promtool", "apt-get install prometheus")
	cmd := exec.CommandContext(t.Context(), program, append([]string{"check"}, args...)...)
	cmd.Stdin = input
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("warn")) {
		t.Errorf("promtool check %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolAcceptsTheFiles(t *testing.T) {
	t.Parallel()
	promtool(t, nil, "rules", "rules.yml")
	promtool(t, nil, "config", "--syntax-only", "scrape.yml") // it names a file of whoever runs it
}

// The names, types and help texts of all metrics, also of those that only some nodes
// export.
func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for _, series := range metrics.New("v0").Series() {
		desc := prometheus.NewDesc(series.Name, series.Help, series.Labels, nil)
		registry.MustRegister(constant{sample(series.Type, desc, series.Labels)})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, &text, "metrics")
}

// sample is a metric of some type; its labels have their own names as values.
func sample(kind string, desc *prometheus.Desc, labels []string) prometheus.Metric {
	switch kind {
	case "counter":
		return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, 1, labels...)
	case "histogram":
		return prometheus.MustNewConstHistogram(desc, 1, 1, map[float64]uint64{1: 1}, labels...)
	default:
		return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1, labels...)
	}
}

// constant collects one metric.
type constant struct{ prometheus.Metric }

func (c constant) Describe(out chan<- *prometheus.Desc) { out <- c.Desc() }
func (c constant) Collect(out chan<- prometheus.Metric) { out <- c.Metric }
