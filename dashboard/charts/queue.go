package charts

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// queueSpecs returns the charts of one queue. The sums of its attempts have its name as their
// label.
func queueSpecs(queue string) []chartSpec {
	percentiles := func(metric string) []lineSpec {
		return []lineSpec{ofKey(queue, "p50", "ok", metric, quantile(.5)), ofKey(queue, "p95", "live", metric, quantile(.95)), ofKey(queue, "p99", "warn", metric, quantile(.99))}
	}
	return append([]chartSpec{
		{id: "work", name: "Jobs a minute", about: "Attempts that began, ended and failed", show: quantity, unit: "a minute", lines: []lineSpec{
			ofKey(queue, "started", "live", ofWait, startsPerMinute), ofKey(queue, "finished", "ok", ofAttempts, perMinute), ofKey(queue, "failed", "bad", ofFailures, perMinute),
		}},
		{id: "wait", name: "Wait", about: "From due to started", show: lengthOf, lines: percentiles(ofWait)},
		{id: "took", name: "Took", about: "From started to finished", show: lengthOf, lines: percentiles(ofTook)},
	}, gaugeSpecs...)
}

// ofKey is the line of the share of one key.
func ofKey(key, name, tone, metric string, value func([]aggregator.Sum, stretch) float64) lineSpec {
	return lineSpec{name: name, tone: tone, metric: metric, label: keyLabel, values: []string{key}, value: value}
}

// startsPerMinute counts the waits: each attempt that starts has one.
func startsPerMinute(in []aggregator.Sum, of stretch) float64 {
	starts := 0.0
	for _, sum := range in {
		if sum.Histogram != nil {
			starts += sum.Histogram.Count()
		}
	}
	return starts / of.Point.Minutes()
}

// gaugeSpecs are the charts of what the metrics aggregator counts in a queue.
var gaugeSpecs = []chartSpec{
	{
		id: "depth", name: "Depth", about: "Unfinished jobs of the queue, on average", show: quantity, unit: "jobs", lines: []lineSpec{
			depthLine("available", "live", "available"), depthLine("running", "ok", "running"),
			depthLine("to be retried", "warn", "retryable"), depthLine("scheduled", "idle", "scheduled"),
		},
	},
	{
		id: "oldest", name: "Oldest job", about: "How long the oldest available job has waited since it was due", show: lengthOf, lines: []lineSpec{
			{name: "waits", tone: "warn", metric: metrics.QueueOldestName, value: mean},
		},
	},
}

func depthLine(name, tone, state string) lineSpec {
	return lineSpec{name: name, tone: tone, metric: metrics.QueueDepthName, label: "state", values: []string{state}, value: mean}
}

// DrawQueue reads the metrics of a queue and draws its charts, like DrawMetrics.
func DrawQueue(ctx context.Context, history breakdowns, queue string, w window.Window, now time.Time) (Drawing, error) {
	var depths []map[string]string
	for _, line := range gaugeSpecs[0].lines {
		depths = append(depths, map[string]string{"queue": queue, "state": line.values[0]})
	}
	return drawCharts(queueSpecs(queue), w, now, func(p *points) error {
		if err := p.readShares(ctx, history, "queue", []string{queue}); err != nil {
			return err
		}
		if err := p.readMetric(ctx, history, metrics.QueueDepthName, "state", depths); err != nil {
			return err
		}
		return p.readMetric(ctx, history, metrics.QueueOldestName, "", []map[string]string{{"queue": queue}})
	})
}
