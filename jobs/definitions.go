package jobs

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
)

// definitions contains the current jobs without code.
type definitions struct {
	current atomic.Pointer[map[string]*worker]
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

// of returns the worker of a kind, or nil if it is not configured.
func (d *definitions) of(kind string) *worker { return (*d.current.Load())[kind] }

// definedUnit runs a job without code, with the definition at the time of its claim.
type definedUnit struct {
	*worker

	job *rivertype.JobRow
}

var _ unit = definedUnit{}

func (definedUnit) middleware() []rivertype.WorkerMiddleware { return nil }

func (definedUnit) decode() error { return nil }

// limit implements unit. The timeout of a command begins when it starts.
func (u definedUnit) limit() time.Duration {
	if u.worker.job.Kind == config.KindShell {
		return -1
	}
	return u.timeout
}

func (u definedUnit) work(ctx context.Context) error { return u.worker.work(ctx, u.job.EncodedArgs) }

func (u definedUnit) nextRetry() time.Time {
	return time.Now().Add(backoff(u.worker.job.Retry, attemptOfRound(u.job)))
}
