package charts

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// queueSpecs are the charts of one queue.
var queueSpecs = []chartSpec{
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
func DrawQueue(ctx context.Context, history sums, queue string, w window.Window, now time.Time) (Drawing, error) {
	var depths []map[string]string
	for _, line := range queueSpecs[0].lines {
		depths = append(depths, map[string]string{"queue": queue, "state": line.values[0]})
	}
	return drawCharts(queueSpecs, w, now, func(p *points) error {
		if err := p.readMetric(ctx, history, presence, "", nil); err != nil {
			return err
		}
		if err := p.readMetric(ctx, history, metrics.QueueDepthName, "state", depths); err != nil {
			return err
		}
		return p.readMetric(ctx, history, metrics.QueueOldestName, "", []map[string]string{{"queue": queue}})
	})
}
