package metrics

import (
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// Sample is the value of one series at one time.
type Sample struct {
	Name   string            `json:"n"`
	Labels map[string]string `json:"l,omitempty"`
	// Value is the value of the series; for a histogram, the number of its
	// observations.
	Value     float64    `json:"v"`
	Histogram *Histogram `json:"h,omitempty"`
}

// Counter reports whether the sample's value only increases while its process
// lives, as for counters and histograms. By Prometheus' naming rule, every counter
// of forge ends in _total.
func (s Sample) Counter() bool { return s.Histogram != nil || strings.HasSuffix(s.Name, "_total") }

// Snapshot returns the current values of forge's series, ordered by name and
// labels.
func (m *Metrics) Snapshot() ([]Sample, error) {
	families, err := m.Registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather the node's metrics: %w", err)
	}
	var samples []Sample
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "forge_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			sample := Sample{Name: family.GetName(), Labels: labels(metric)}
			if read(metric, &sample) {
				samples = append(samples, sample)
			}
		}
	}
	return samples, nil
}

// read sets the value of sample and reports whether forge exports metrics of this
// type.
func read(metric *dto.Metric, sample *Sample) bool {
	switch {
	case metric.GetCounter() != nil:
		sample.Value = metric.GetCounter().GetValue()
	case metric.GetGauge() != nil:
		sample.Value = metric.GetGauge().GetValue()
	case metric.GetHistogram() != nil:
		sample.Value = float64(metric.GetHistogram().GetSampleCount())
		sample.Histogram = newHistogram(metric.GetHistogram())
	default:
		return false
	}
	return true
}

func labels(metric *dto.Metric) map[string]string {
	if len(metric.GetLabel()) == 0 {
		return nil
	}
	values := make(map[string]string, len(metric.GetLabel()))
	for _, pair := range metric.GetLabel() {
		values[pair.GetName()] = pair.GetValue()
	}
	return values
}
