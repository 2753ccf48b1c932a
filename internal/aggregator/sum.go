package aggregator

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// report is what a node's row of forge_metrics_nodes holds.
type report struct {
	// Instance names the counters that Samples were read from.
	Instance string `json:"instance,omitempty"`
	// Base is what counters of earlier instances had come to.
	Base    []metrics.Sample `json:"base,omitempty"`
	Samples []metrics.Sample `json:"samples,omitempty"`
	// Clock is the node's own when it sent this.
	Clock time.Time `json:"clock,omitzero"`
}

// sums are the samples of a set of series, by seriesKey.
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

// ordered returns the samples in the order of their keys.
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

// reportable drops what a report need not carry: counters at 0, numbers that
// JSON cannot hold, times, which have no sum, and what the aggregator's leader
// counts itself.
func reportable(samples []metrics.Sample) []metrics.Sample {
	return slices.DeleteFunc(samples, func(s metrics.Sample) bool {
		return s.Counter() && s.Value == 0 ||
			math.IsNaN(s.Value) || math.IsInf(s.Value, 0) ||
			strings.HasSuffix(s.Name, "_timestamp_seconds") ||
			metrics.OfCluster(s.Name)
	})
}

// carry returns the base of a report by instance that follows previous: a new
// instance counts from 0 again, so all that was counted before it moves over.
func carry(previous report, instance string) []metrics.Sample {
	if previous.Instance == instance {
		return previous.Base
	}
	return counted(previous)
}

// counted adds the counters of all reports up, series by series.
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

// nodeReport is a report and whether its gauges still hold.
type nodeReport struct {
	report
	fresh bool
}

// clusterSums adds the nodes up: every counter, and the gauges of the fresh, save
// for what they say of roles that are vacant.
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
	if _, ok := sample.Labels["node_id"]; ok {
		sample.Labels = maps.Clone(sample.Labels)
		delete(sample.Labels, "node_id")
	}
	return sample
}

// changes returns what has to be written after written: the series whose sum is
// another, and a 0 for every gauge that is gone: there is nothing left of what it
// counted.
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
