package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
)

// execution runs one attempt of a job without code.
type execution func(ctx context.Context, a *attempt) error

// worker runs one configured job.
type worker struct {
	kind    string
	job     config.Job
	timeout time.Duration
	execute execution
	redact  *redactor
}

func newWorker(name string, options Options) (*worker, error) {
	job := options.Jobs[name]
	if job.Timeout <= 0 {
		job.Timeout = config.Duration(defaultTimeout)
	}
	execute, err := executionOf(job, options)
	if err != nil {
		return nil, fmt.Errorf("job %q: %w", name, err)
	}
	w := &worker{
		kind: name, job: job, timeout: job.Timeout.Std(), execute: execute,
		redact: newRedactor(job, options.ClusterURL),
	}
	return w, nil
}

func executionOf(job config.Job, options Options) (execution, error) {
	switch job.Kind {
	case config.KindShell:
		return newShell(job, options)
	case config.KindHTTP:
		return newHTTP(job, options)
	case config.KindSQL:
		return newSQL(job, options)
	default:
		return nil, fmt.Errorf("unknown kind %q, want %s, %s or %s",
			job.Kind, config.KindShell, config.KindHTTP, config.KindSQL)
	}
}

// work runs an attempt. The text of the error has no secrets of the configuration. The
// executor detects a drain by its wrapped causes.
func (w *worker) work(ctx context.Context, body json.RawMessage) error {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return errors.New("the attempt was not recorded") // cannot happen: the executor always sets it
	}
	args, err := jobArgs(body)
	if err != nil {
		return err
	}
	a.args = args
	a.output.configure(w.job.Output, w.redact)
	err = w.execute(ctx, a)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = &timeoutError{after: w.timeout, err: err}
	}
	return w.redact.error(err)
}

// jobArgs checks the args of a row, which may come from anyone, for example from a Go
// program without forge's limits. The database adds spaces to JSON.
func jobArgs(body json.RawMessage) (json.RawMessage, error) {
	if len(body) <= config.MaxArgs {
		return body, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, body); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	return compact.Bytes(), config.CheckArgs(compact.Bytes())
}

// timeoutError is the error of an attempt that its own timeout ended.
type timeoutError struct {
	after time.Duration
	err   error
}

func (e *timeoutError) Error() string { return fmt.Sprintf("timed out after %s: %v", e.after, e.err) }

func (e *timeoutError) Unwrap() []error { return []error{context.DeadlineExceeded, e.err} }
