package crons

import (
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/tracing"
	"github.com/forge-scheduler/forge/leaderstore"
)

// tickTraces are the spans of the ticks of one transaction.
type tickTraces struct {
	tracer  *tracing.Tracer // nil without tracing
	parent  tracing.Carrier // of the spans; zero: each is a root
	fence   leaderstore.Fence
	started map[cronstore.Key]*tracing.Tick
}

// start starts the span of a tick that fires, and adds it to the metadata of the job.
func (t *tickTraces) start(row cronstore.Tick, metadata map[string]any) {
	if t.tracer == nil {
		t.parent.AddTo(metadata)
		return
	}
	span := t.span(row)
	span.Carrier().AddTo(metadata)
	if t.started == nil {
		t.started = map[cronstore.Key]*tracing.Tick{}
	}
	t.started[cronstore.KeyOf(row.Cron, row.Tick)] = span
}

func (t *tickTraces) span(row cronstore.Tick) *tracing.Tick {
	return t.tracer.NewTick(t.parent, row.Cron, row.Tick, row.Count, t.fence.Term, t.fence.NodeID)
}

// finish ends the spans once the transaction has ended. Rows that do not fire get their spans
// only now, because no job refers to them.
func (t *tickTraces) finish(rows []cronstore.Tick, err error) {
	if t.tracer == nil {
		return
	}
	for _, span := range t.started {
		if err != nil {
			span.Failed(err)
		}
	}
	if err == nil {
		for _, row := range rows {
			span := t.started[cronstore.KeyOf(row.Cron, row.Tick)]
			if span == nil {
				span = t.span(row)
			}
			span.Recorded(string(row.Verdict), row.Reason, row.JobID)
		}
	}
	t.started = nil
}
