package metrics

import (
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// Sample is the value of one series at one instant.
type Sample struct {
	Name   string            `json:"n"`
	Labels map[string]string `json:"l,omitempty"`
	Value  float64           `json:"v"`
}

// Counter says whether the sample's value only ever rises while its process
// lives. By Prometheus' rule of naming every counter of forge ends in _total.
func (s Sample) Counter() bool { return strings.HasSuffix(s.Name, "_total") }

// Snapshot returns forge's counters and gauges as they stand, ordered by name
// and labels. Histograms stay with Prometheus.
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
			if value, ok := scalar(metric); ok {
				samples = append(samples, Sample{Name: family.GetName(), Labels: labels(metric), Value: value})
			}
		}
	}
	return samples, nil
}

func scalar(metric *dto.Metric) (value float64, ok bool) {
	if counter := metric.GetCounter(); counter != nil {
		return counter.GetValue(), true
	}
	if gauge := metric.GetGauge(); gauge != nil {
		return gauge.GetValue(), true
	}
	return 0, false
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
