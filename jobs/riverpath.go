package jobs

import (
	"context"
	"strconv"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs/internal/riveradapter"
)

// riverRecorder is the worker middleware that records the attempts that River's client
// runs.
type riverRecorder struct {
	river.MiddlewareDefaults
	*recorder

	guests *guests
	pilot  *riveradapter.Pilot
}

var _ rivertype.WorkerMiddleware = (*riverRecorder)(nil)

// skips reports that a job is no attempt, or that forge's executor runs it.
func (r *riverRecorder) skips(job *rivertype.JobRow) bool {
	return job.Kind == eventsKind || r.guests.of(job) != nil
}

// Work implements rivertype.WorkerMiddleware.
func (r *riverRecorder) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) (err error) {
	if r.skips(job) {
		return work(ctx)
	}
	r.pilot.MayBeSubscribed() // the context contains the client
	a := &attempt{}
	r.begin(job, a)
	ctx = a.trace.Context(ctx)
	started := time.Now()
	panicked := true
	defer func() {
		if panicked {
			err = errPanic // River's own handler writes the value and the trace
		}
		r.record(ctx, a, started, err)
	}()
	defer sanitizePanic()
	err = sanitizeError(r.isolate(job, func() error { return work(context.WithValue(ctx, attemptKey{}, a)) }))
	panicked = false
	return err
}

// isolate runs a worker on its own goroutine and repeats its panic.
func (r *riverRecorder) isolate(job *rivertype.JobRow, work func() error) error {
	end := isolate(work)
	if end.panicked != nil {
		r.guests.keepTrace(job.ID, end.trace)
		panic(end.panicked)
	}
	return end.err
}

// record passes the result of the attempt to River's executor.
func (r *riverRecorder) record(ctx context.Context, a *attempt, started time.Time, err error) {
	var cause error
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	result := r.end(ctx, a, started, cause, err)
	if result.Plain() {
		return
	}
	if err := river.MetadataSet(ctx, jobstore.KeyAttempt+strconv.Itoa(a.Attempt), result); err != nil {
		r.logger.ErrorContext(ctx, "attempt not recorded", "job_id", a.JobID, "error", err)
	}
}
