package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Attempts holds the collectors of attempts by one label.
type Attempts struct {
	Finished *prometheus.CounterVec // also outcome
	Duration *prometheus.HistogramVec
	Wait     *prometheus.HistogramVec
}

// The prefixes of the series of attempts by kind, cron, queue and node.
const (
	kindJobs  = "forge_job_"
	cronJobs  = "forge_cron_job_"
	queueJobs = "forge_queue_job_"
	nodeJobs  = "forge_node_job_"
)

// The ends of the names of these series.
const (
	finished = "finished_total"
	duration = "duration_seconds"
	wait     = "wait_seconds"
)

func (f *factory) attempts(prefix, by, label string) Attempts {
	return Attempts{
		Finished: f.counterVec(prefix+finished, "Attempts finished by this node, "+by+" and outcome. The scheduler's leader also counts the attempts of dead nodes, as lost.", label, "outcome"),
		Duration: f.histogramVec(prefix+duration, "Seconds that an attempt ran, "+by+".", label),
		Wait:     f.histogramVec(prefix+wait, "Seconds from the time at which a job was due to its start, "+by+".", label),
	}
}

func (a Attempts) init(label string) {
	for _, outcome := range outcomes {
		a.Finished.WithLabelValues(label, outcome)
	}
}

// OfNode reports whether the label node_id of a series is the node of its attempts, so that
// the cluster's totals have it.
func OfNode(name string) bool { return strings.HasPrefix(name, nodeJobs) }

// Dimensions are what attempts can be divided by.
var Dimensions = []string{"cron", "kind", "node", "queue"}

// Measure is what a series of attempts measures.
type Measure int

// The measures of attempts.
const (
	NoMeasure Measure = iota
	MeasureFinished
	MeasureDuration
	MeasureWait
)

// divisions are the series of attempts by their dimensions.
var divisions = []struct{ prefix, dimension, label string }{
	{cronJobs, "cron", "cron"}, {kindJobs, "kind", "kind"}, {nodeJobs, "node", "node_id"}, {queueJobs, "queue", "queue"},
}

var measures = map[string]Measure{finished: MeasureFinished, duration: MeasureDuration, wait: MeasureWait}

// Division returns the dimension, the key in it and the measure of a series of attempts;
// NoMeasure for other series.
func Division(name string, labels map[string]string) (dimension, key string, of Measure) {
	for _, d := range divisions {
		if rest, ok := strings.CutPrefix(name, d.prefix); ok && measures[rest] != NoMeasure {
			return d.dimension, labels[d.label], measures[rest]
		}
	}
	return "", "", NoMeasure
}
