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

// configuredKind is the single kind under which River runs all jobs without code. River's
// worker map must not change while a client runs, but the configuration may. So a claimed
// job is passed to River with this kind, bound to its definition at the time of the
// claim. Its row keeps the job's name.
const configuredKind = "forge:configured"

// definitions contains the current jobs without code.
type definitions struct {
	current atomic.Pointer[map[string]*worker]
	bound   sync.Map // from *rivertype.JobRow to *worker
}

// register registers the dispatcher. It converts River's panic, which reports that the
// kind already exists, to an error.
func (d *definitions) register(workers *river.Workers) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("register the jobs without code: %v; each node needs its own river.Workers", problem)
		}
	}()
	river.AddWorkerArgs(workers, args{kind: configuredKind}, &dispatcher{d})
	return nil
}

// newWorkers creates a worker for each configured job. It returns no workers if any job
// is invalid.
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

// get returns the job of that name; ok is false if it is not configured.
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

// claimed binds a job to its definition before River gets it.
func (d *definitions) claimed(job *rivertype.JobRow) {
	if w, ok := (*d.current.Load())[job.Kind]; ok {
		d.bound.Store(job, w)
		job.Kind = configuredKind
	}
}

// restoreKind restores the kind of a job.
func (d *definitions) restoreKind(job *rivertype.JobRow) {
	if w := d.of(job); w != nil {
		job.Kind = w.kind
	}
}

func (d *definitions) finished(job *rivertype.JobRow) { d.bound.Delete(job) }

// of returns the worker that the job is bound to, or nil for a Go program's own job.
func (d *definitions) of(job *rivertype.JobRow) *worker {
	w, _ := d.bound.Load(job)
	bound, _ := w.(*worker)
	return bound
}

// dispatcher is River's worker for all configured jobs.
type dispatcher struct{ definitions *definitions }

var _ river.Worker[args] = (*dispatcher)(nil)

// Middleware implements river.Worker.
func (d *dispatcher) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware { return nil }

// Timeout implements river.Worker. The timeout of a command begins when it starts, which
// River does not know.
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

// NextRetry implements river.Worker.
func (d *dispatcher) NextRetry(job *river.Job[args]) time.Time {
	if w := d.definitions.of(job.JobRow); w != nil {
		return time.Now().Add(backoff(w.job.Retry, attemptOfRound(job.JobRow)))
	}
	return time.Time{}
}

// Work implements river.Worker.
func (d *dispatcher) Work(ctx context.Context, job *river.Job[args]) error {
	w := d.definitions.of(job.JobRow)
	if w == nil {
		return errors.New("the kind " + configuredKind + " is forge's own and cannot be enqueued")
	}
	return w.work(ctx, job.Args.body)
}
