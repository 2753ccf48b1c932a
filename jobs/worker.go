package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
)

// execution runs one attempt of a job without code.
type execution func(ctx context.Context, a *attempt) error

// worker is River's view of one configured job.
type worker struct {
	job     config.Job
	timeout time.Duration
	execute execution
	redact  redactor
}

// register adds each configured job as a kind of its own. River's worker map
// must not change once a client runs, so this happens at construction.
func register(workers *river.Workers, options Options) error {
	for _, name := range slices.Sorted(maps.Keys(options.Jobs)) {
		job := options.Jobs[name]
		execute, err := executionOf(job, options)
		if err != nil {
			return fmt.Errorf("job %q: %w", name, err)
		}
		w := &worker{job: job, timeout: job.Timeout.Std(), execute: execute, redact: newRedactor(job, options.ClusterURL)}
		if w.timeout <= 0 {
			w.timeout = defaultTimeout
		}
		if err := addKind(workers, name, w); err != nil {
			return fmt.Errorf("job %q: %w", name, err)
		}
	}
	return nil
}

// addKind turns River's panic, its only way to say that a kind is taken, into
// an error.
func addKind(workers *river.Workers, kind string, w *worker) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("%v", problem)
		}
	}()
	river.AddWorkerArgs(workers, args{kind: kind}, w)
	return nil
}

func executionOf(job config.Job, options Options) (execution, error) {
	switch job.Kind {
	case config.KindShell:
		return newShell(job)
	case config.KindHTTP:
		return newHTTP(job, options.AllowPrivateTargets)
	case config.KindSQL:
		return newSQL(job, options)
	default:
		return nil, fmt.Errorf("unknown kind %q, want %s, %s or %s",
			job.Kind, config.KindShell, config.KindHTTP, config.KindSQL)
	}
}

// Middleware is part of river.Worker.
func (w *worker) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware { return nil }

// Timeout is part of river.Worker.
func (w *worker) Timeout(*river.Job[args]) time.Duration { return w.timeout }

// NextRetry is part of river.Worker.
func (w *worker) NextRetry(job *river.Job[args]) time.Time {
	return time.Now().Add(backoff(w.job.Retry, job.Attempt))
}

// Work runs the attempt. The error is shown as it is, without the
// configuration's secrets; its wrapped causes tell River of a drain.
func (w *worker) Work(ctx context.Context, job *river.Job[args]) error {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return errors.New("the attempt was not recorded") // the middleware is always there
	}
	a.args = job.Args.body
	a.output.limit(w.job.Output.Capture)
	err := w.execute(ctx, a)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = &timeoutError{after: w.timeout, err: err}
	}
	return w.redact.error(err)
}

// timeoutError says that the job's own timeout ended it.
type timeoutError struct {
	after time.Duration
	err   error
}

func (e *timeoutError) Error() string { return fmt.Sprintf("timed out after %s: %v", e.after, e.err) }

func (e *timeoutError) Unwrap() []error { return []error{context.DeadlineExceeded, e.err} }
