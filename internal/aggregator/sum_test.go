package aggregator

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forge-scheduler/forge/internal/metrics"
)

func counter(value float64, pairs ...string) metrics.Sample {
	return sample("forge_job_started_total", value, pairs...)
}

func gauge(value float64, pairs ...string) metrics.Sample {
	return sample("forge_job_running", value, pairs...)
}

func sample(name string, value float64, pairs ...string) metrics.Sample {
	s := metrics.Sample{Name: name, Value: value}
	for i := 0; i < len(pairs); i += 2 {
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[pairs[i]] = pairs[i+1]
	}
	return s
}

func TestCarry(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		previous report
		want     []metrics.Sample
	}{
		"first report of a node": {},
		"same instance again": {
			previous: report{Instance: "now", Base: []metrics.Sample{counter(3)}, Samples: []metrics.Sample{counter(5)}},
			want:     []metrics.Sample{counter(3)},
		},
		"restart": {
			previous: report{Instance: "old", Samples: []metrics.Sample{counter(5), gauge(2)}},
			want:     []metrics.Sample{counter(5)},
		},
		"second restart": {
			previous: report{Instance: "old", Base: []metrics.Sample{counter(3)}, Samples: []metrics.Sample{counter(5)}},
			want:     []metrics.Sample{counter(8)},
		},
		"series of one side only": {
			previous: report{
				Instance: "old",
				Base:     []metrics.Sample{counter(3, "kind", "a")},
				Samples:  []metrics.Sample{counter(5, "kind", "b")},
			},
			want: []metrics.Sample{counter(3, "kind", "a"), counter(5, "kind", "b")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, carry(test.previous, "now"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("carry (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClusterSums(t *testing.T) {
	t.Parallel()
	leads := func(value float64, node string) metrics.Sample {
		return sample("forge_leader_is_leader", value, "role", "scheduler", "node_id", node)
	}
	for name, test := range map[string]struct {
		nodes []nodeReport
		want  []metrics.Sample
	}{
		"none": {},
		"base and samples of two nodes": {
			nodes: []nodeReport{
				{fresh: true, report: report{Base: []metrics.Sample{counter(10)}, Samples: []metrics.Sample{counter(1)}}},
				{fresh: true, report: report{Samples: []metrics.Sample{counter(2)}}},
			},
			want: []metrics.Sample{counter(13)},
		},
		"a node that is gone keeps its counters and loses its gauges": {
			nodes: []nodeReport{
				{fresh: true, report: report{Samples: []metrics.Sample{counter(1), gauge(4)}}},
				{fresh: false, report: report{Samples: []metrics.Sample{counter(2), gauge(8)}}},
			},
			want: []metrics.Sample{gauge(4), counter(3)},
		},
		"nodes are not told apart, kinds are": {
			nodes: []nodeReport{
				{fresh: true, report: report{Samples: []metrics.Sample{leads(1, "a"), gauge(1, "kind", "x")}}},
				{fresh: true, report: report{Samples: []metrics.Sample{leads(0, "b"), gauge(2, "kind", "y")}}},
			},
			want: []metrics.Sample{
				gauge(1, "kind", "x"), gauge(2, "kind", "y"), sample("forge_leader_is_leader", 1, "role", "scheduler"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, clusterSums(test.nodes, nil).ordered(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("sums (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClusterSumsDoesNotChangeReports(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"node_id": "a", "role": "scheduler"}
	clusterSums([]nodeReport{{fresh: true, report: report{Samples: []metrics.Sample{{Name: "forge_x", Labels: labels}}}}}, nil)
	if labels["node_id"] != "a" {
		t.Error("clusterSums changed a report's labels")
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	of := func(samples ...metrics.Sample) sums {
		s := sums{}
		for _, sample := range samples {
			s.add(sample)
		}
		return s
	}
	for name, test := range map[string]struct {
		written, now sums
		want         []metrics.Sample
	}{
		"first":               {now: of(counter(1), gauge(0)), want: []metrics.Sample{gauge(0), counter(1)}},
		"same":                {written: of(counter(1), gauge(2)), now: of(counter(1), gauge(2))},
		"one changed":         {written: of(counter(1), gauge(2)), now: of(counter(1), gauge(3)), want: []metrics.Sample{gauge(3)}},
		"gauge gone":          {written: of(gauge(2)), now: of(), want: []metrics.Sample{gauge(0)}},
		"gauge gone at 0":     {written: of(gauge(0)), now: of()},
		"counters never fall": {written: of(counter(2)), now: of()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, changes(test.written, test.now).ordered(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReportable(t *testing.T) {
	t.Parallel()
	got := reportable([]metrics.Sample{
		counter(0),
		gauge(0),
		counter(1),
		gauge(math.NaN(), "kind", "nan"),
		gauge(math.Inf(1), "kind", "inf"),
		sample(metrics.QueueDepthName, 3),
		sample(metrics.NodesName, 3),
		sample(metrics.ConfigDriftName, 3),
		sample("forge_some_timestamp_seconds", 3),
	})
	if diff := cmp.Diff([]metrics.Sample{gauge(0), counter(1)}, got); diff != "" {
		t.Errorf("reportable (-want +got):\n%s", diff)
	}
}

// Labels must not run into each other.
func TestSeriesKey(t *testing.T) {
	t.Parallel()
	keys := map[string]metrics.Sample{}
	for _, s := range []metrics.Sample{
		sample("n", 0), sample("n", 0, "a", "b"), sample("na", 0, "b", ""), sample("n", 0, "a", "", "b", ""),
		sample("n", 0, "ab", ""), sample("n", 0, "a", "c", "b", "d"),
	} {
		if other, ok := keys[seriesKey(s)]; ok {
			t.Errorf("%v and %v share the key %q", s, other, seriesKey(s))
		}
		keys[seriesKey(s)] = s
	}
}

func TestVacantRoleHasNoLeader(t *testing.T) {
	t.Parallel()
	leads := func(role string) metrics.Sample {
		return metrics.Sample{Name: metrics.LeaderIsLeaderName, Labels: map[string]string{"role": role, "node_id": "a"}, Value: 1}
	}
	total := clusterSums([]nodeReport{{fresh: true, report: report{Samples: []metrics.Sample{leads("led"), leads("vacant")}}}},
		map[string]bool{"vacant": true})
	got := map[string]float64{}
	for _, sample := range total {
		got[sample.Labels["role"]] = sample.Value
	}
	if diff := cmp.Diff(map[string]float64{"led": 1, "vacant": 0}, got); diff != "" {
		t.Errorf("leaders (-want +got):\n%s", diff)
	}
}
