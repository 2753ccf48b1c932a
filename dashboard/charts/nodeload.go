package charts

import (
	"context"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// DrawNodeLoad reads the slots in use of a node in a window, and the attempts that ended on it, and
// draws them like DrawMetrics.
func DrawNodeLoad(ctx context.Context, history breakdowns, node string, slots int, w window.Window, now time.Time) (Drawing, error) {
	specs := []chartSpec{{
		id: "load", name: "Slots in use", about: fmt.Sprintf("By running jobs, on average; the node has %d", slots), show: quantity,
		lines: []lineSpec{{name: "in use", tone: "live", metric: metrics.NodeUsedName, value: mean}},
	}, {
		id: "worked", name: "Jobs a minute", about: "Attempts that ended on the node, and those that failed", show: quantity, unit: "a minute",
		lines: []lineSpec{ofKey(node, "finished", "ok", ofAttempts, perMinute), ofKey(node, "failed", "bad", ofFailures, perMinute)},
	}}
	return drawCharts(specs, w, now, func(p *points) error {
		if err := p.readShares(ctx, history, "node", []string{node}); err != nil {
			return err
		}
		return p.readMetric(ctx, history, metrics.NodeUsedName, "", []map[string]string{{"node_id": node}})
	})
}
