package jobs

import (
	"context"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/tracing"
)

// insertMiddleware returns the middleware of all inserts of a node, the outermost first. The
// program's own sees the jobs with their trace, and its changes are what is inserted.
func (o Options) insertMiddleware() []rivertype.Middleware {
	var chain []rivertype.Middleware
	if o.Tracer != nil {
		chain = append(chain, traceInserts(o.Tracer))
	}
	for _, own := range o.Middleware {
		if inserts, ok := own.(rivertype.JobInsertMiddleware); ok {
			chain = append(chain, insertsOnly{inserts})
		}
	}
	return append(chain, countInserts(o.Metrics), reserved)
}

// insertsOnly hides that a middleware is also one for workers.
type insertsOnly struct{ rivertype.JobInsertMiddleware }

// workerMiddleware returns those that are called around workers.
func workerMiddleware(all []rivertype.Middleware) (workers []rivertype.WorkerMiddleware) {
	for _, own := range all {
		if worker, ok := own.(rivertype.WorkerMiddleware); ok {
			workers = append(workers, worker)
		}
	}
	return workers
}

// riverMiddleware is a program's middleware around the workers that River's client runs. It
// hides that the middleware is also one for inserts.
type riverMiddleware struct {
	rivertype.WorkerMiddleware

	recorder *riverRecorder
}

// Work implements rivertype.WorkerMiddleware.
func (m riverMiddleware) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	if m.recorder.skips(job) {
		return work(ctx)
	}
	return m.WorkerMiddleware.Work(ctx, job, work)
}

func traceInserts(tracer *tracing.Tracer) rivertype.Middleware {
	return river.JobInsertMiddlewareFunc(func(ctx context.Context, params []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
		return tracer.Insert(ctx, params, insert)
	})
}
