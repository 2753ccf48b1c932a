package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
)

// configuredKind is the one kind that River knows for all jobs without code.
// River's worker map must not change while a client runs, and the file may: a
// claimed job goes to River under this kind, bound to the definition that was in
// force when it was claimed. Its row keeps the job's name.
const configuredKind = "forge:configured"

// definitions are the jobs without code, as this node runs them now.
type definitions struct {
	current atomic.Pointer[map[string]*worker]
	bound   sync.Map // *rivertype.JobRow to *worker
}

// register turns River's panic, its only way to say that a kind is taken, into
// an error.
func (d *definitions) register(workers *river.Workers) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("register the jobs without code: %v; each node needs a river.Workers of its own", problem)
		}
	}()
	river.AddWorkerArgs(workers, args{kind: configuredKind}, &dispatcher{d})
	return nil
}

// newWorkers makes a worker of each configured job, or none of any.
func newWorkers(options Options) (map[string]*worker, error) {
	workers := make(map[string]*worker, len(options.Jobs))
	for _, name := range slices.Sorted(maps.Keys(options.Jobs)) {
		if options.Jobs[name].Kind == config.KindGo {
			continue // a Go program has the worker
		}
		w, err := newWorker(name, options)
		if err != nil {
			return nil, err
		}
		workers[name] = w
	}
	return workers, nil
}

// get returns the job of that name; ok is false for one that is not configured.
func (d *definitions) get(name string) (job config.Job, ok bool) {
	w, ok := (*d.current.Load())[name]
	if !ok {
		return config.Job{}, false
	}
	return w.job, true
}

func (d *definitions) names() []string {
	return slices.Sorted(maps.Keys(*d.current.Load()))
}

// claimed binds a job to its definition before River sees it.
func (d *definitions) claimed(job *rivertype.JobRow) {
	if w, ok := (*d.current.Load())[job.Kind]; ok {
		d.bound.Store(job, w)
		job.Kind = configuredKind
	}
}

// begun gives the job its own kind back.
func (d *definitions) begun(job *rivertype.JobRow) {
	if w := d.of(job); w != nil {
		job.Kind = w.kind
	}
}

func (d *definitions) finished(job *rivertype.JobRow) { d.bound.Delete(job) }

// of returns the worker that the job is bound to, nil for a Go program's own.
func (d *definitions) of(job *rivertype.JobRow) *worker {
	w, _ := d.bound.Load(job)
	bound, _ := w.(*worker)
	return bound
}

// dispatcher is River's worker for all configured jobs.
type dispatcher struct{ definitions *definitions }

var _ river.Worker[args] = (*dispatcher)(nil)

// Middleware is part of river.Worker.
func (d *dispatcher) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware { return nil }

// Timeout is part of river.Worker. That of a command begins with its start, which is
// nothing that River knows of.
func (d *dispatcher) Timeout(job *river.Job[args]) time.Duration {
	switch w := d.definitions.of(job.JobRow); {
	case w == nil:
		return 0
	case w.job.Kind == config.KindShell:
		return -1
	default:
		return w.timeout
	}
}

// NextRetry is part of river.Worker.
func (d *dispatcher) NextRetry(job *river.Job[args]) time.Time {
	if w := d.definitions.of(job.JobRow); w != nil {
		return time.Now().Add(backoff(w.job.Retry, attemptOfRound(job.JobRow)))
	}
	return time.Time{}
}

// Work is part of river.Worker.
func (d *dispatcher) Work(ctx context.Context, job *river.Job[args]) error {
	w := d.definitions.of(job.JobRow)
	if w == nil {
		return errors.New("the kind " + configuredKind + " is forge's own and cannot be enqueued")
	}
	return w.work(ctx, job.Args.body)
}
