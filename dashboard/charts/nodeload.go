package charts

import (
	"context"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// DrawNodeLoad reads the slots in use of a node in a window and draws them, like DrawMetrics.
func DrawNodeLoad(ctx context.Context, history sums, node string, slots int, w window.Window, now time.Time) (Drawing, error) {
	specs := []chartSpec{{
		id: "load", name: "Slots in use", about: fmt.Sprintf("By running jobs, on average; the node has %d", slots), show: quantity,
		lines: []lineSpec{{name: "in use", tone: "live", metric: metrics.NodeUsedName, value: mean}},
	}}
	return drawCharts(specs, w, now, func(p *points) error {
		if err := p.readMetric(ctx, history, presence, "", nil); err != nil {
			return err
		}
		return p.readMetric(ctx, history, metrics.NodeUsedName, "", []map[string]string{{"node_id": node}})
	})
}
