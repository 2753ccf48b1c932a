package aggregator

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// report is the content of a node's row of forge_metrics_nodes.
type report struct {
	// Instance identifies the counters from which Samples were read.
	Instance string `json:"instance,omitempty"`
	// Base holds the final values of the counters of earlier instances.
	Base    []metrics.Sample `json:"base,omitempty"`
	Samples []metrics.Sample `json:"samples,omitempty"`
	// Clock is the time of the node's clock when it sent the report, and Began when
	// the instance started.
	Clock time.Time `json:"clock,omitzero"`
	Began time.Time `json:"began,omitzero"`
}

// sums holds the samples of a set of series, by seriesKey.
type sums map[string]metrics.Sample

func (s sums) add(sample metrics.Sample) {
	key := seriesKey(sample)
	sum, ok := s[key]
	if !ok {
		s[key] = sample
		return
	}
	sum.Value += sample.Value
	sum.Histogram = sum.Histogram.Plus(sample.Histogram)
	s[key] = sum
}

// ordered returns the samples ordered by key.
func (s sums) ordered() []metrics.Sample {
	samples := make([]metrics.Sample, 0, len(s))
	for _, key := range slices.Sorted(maps.Keys(s)) {
		samples = append(samples, s[key])
	}
	return samples
}

func seriesKey(sample metrics.Sample) string {
	var key strings.Builder
	key.WriteString(sample.Name)
	for _, label := range slices.Sorted(maps.Keys(sample.Labels)) {
		key.WriteString("\x00" + label + "\x00" + sample.Labels[label])
	}
	return key.String()
}

// reportable drops samples that a report does not need: counters at 0, numbers that
// JSON cannot represent, timestamps, which have no sum, and the gauges that the
// aggregator's leader sets.
func reportable(samples []metrics.Sample) []metrics.Sample {
	return slices.DeleteFunc(samples, func(s metrics.Sample) bool {
		return s.Counter() && s.Value == 0 ||
			math.IsNaN(s.Value) || math.IsInf(s.Value, 0) ||
			strings.HasSuffix(s.Name, "_timestamp_seconds") ||
			metrics.OfCluster(s.Name)
	})
}

// carry returns the base of a report by instance that follows previous: a new
// instance counts from 0, so all earlier counts move to the base.
func carry(previous report, instance string) []metrics.Sample {
	if previous.Instance == instance {
		return previous.Base
	}
	return counted(previous)
}

// counted sums the counters of all reports, series by series.
func counted(reports ...report) []metrics.Sample {
	total := sums{}
	for _, r := range reports {
		for _, sample := range slices.Concat(r.Base, r.Samples) {
			if sample.Counter() {
				total.add(sample)
			}
		}
	}
	return total.ordered()
}

// nodeReport is a report and whether its gauges are still valid.
type nodeReport struct {
	report
	fresh bool
}

// clusterSums sums the nodes: every counter, and the gauges of fresh reports,
// except the leader gauges of vacant roles.
func clusterSums(nodes []nodeReport, vacant map[string]bool) sums {
	total := sums{}
	for _, node := range nodes {
		for _, sample := range slices.Concat(node.Base, node.Samples) {
			if !sample.Counter() && !node.fresh {
				continue
			}
			if sample.Name == metrics.LeaderIsLeaderName && vacant[sample.Labels["role"]] {
				sample.Value = 0
			}
			total.add(withoutNode(sample))
		}
	}
	return total
}

func withoutNode(sample metrics.Sample) metrics.Sample {
	if _, ok := sample.Labels["node_id"]; ok && !metrics.OfNode(sample.Name) {
		sample.Labels = maps.Clone(sample.Labels)
		delete(sample.Labels, "node_id")
	}
	return sample
}

// changes returns the samples to write after written: the series whose sum differs,
// and a 0 for every gauge that no longer exists.
func changes(written, now sums) sums {
	changed := sums{}
	for key, sample := range now {
		if before, ok := written[key]; !ok || before.Value != sample.Value {
			changed[key] = sample
		}
	}
	for key, sample := range written {
		if _, ok := now[key]; !ok && !sample.Counter() && sample.Value != 0 {
			sample.Value = 0
			changed[key] = sample
		}
	}
	return changed
}
