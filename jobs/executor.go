package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/jobs/internal/riveradapter"
)

const (
	// stuckAfter is how long after its timeout an attempt is reported as stuck. It equals
	// River's.
	stuckAfter = 5 * time.Second
	// watchInterval is how often running attempts are checked. Goroutines without work end
	// after one to two intervals.
	watchInterval = 5 * time.Second
)

// errStopped is the cause of the contexts of attempts that a stopping node cancels.
var errStopped = errors.New("the node stops")

// unit runs one job.
type unit interface {
	// middleware returns the middleware of the job's worker.
	middleware() []rivertype.WorkerMiddleware
	// decode decodes the arguments. The methods below need them.
	decode() error
	// limit returns how long the work may take: 0 means the default, less means no limit.
	limit() time.Duration
	work(ctx context.Context) error
	// nextRetry returns when a failed job is tried again; zero means River's default.
	nextRetry() time.Time
}

// executor runs jobs: those without code, and those of workers that were added with
// AddWorker. Its goroutines run many jobs one after the other.
type executor struct {
	recorder    *recorder
	definitions *definitions
	pilot       *riveradapter.Pilot
	client      *river.Client[pgx.Tx]
	retry       river.DefaultClientRetryPolicy
	logger      *slog.Logger

	guests *guests
	outer  []rivertype.WorkerMiddleware // the program's, around that of each worker

	tasks chan *task // to goroutines without work

	mu       sync.Mutex
	kinds    map[string]goKind // those that were added with AddWorker
	rivers   map[string]string // kinds that River's client runs, and why
	parent   context.Context   //nolint:containedctx // of the attempts' contexts
	active   map[int64]*task
	watching bool
	retire   chan struct{} // closed to end the goroutines without work
}

func newExecutor(r *recorder, d *definitions, logger *slog.Logger) *executor {
	return &executor{
		recorder: r, definitions: d, logger: logger, tasks: make(chan *task), parent: context.Background(),
		active: map[int64]*task{}, retire: make(chan struct{}), kinds: map[string]goKind{}, rivers: map[string]string{},
		guests: newGuests(),
	}
}

// task is a claimed job and its attempt.
type task struct {
	attemptContext
	attempt

	executor *executor
	job      *rivertype.JobRow
	unit     unit  // nil for an unknown kind
	err      error // why the row could not be decoded
	decoded  bool  // the arguments are
	stuckAt  time.Time
	stuck    bool
	guest    *guest          // nil if River's executor does not know the attempt
	lent     context.Context //nolint:containedctx // of the guest, for its values
}

// setParent sets the parent of the attempts' contexts, which never ends.
func (e *executor) setParent(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parent = ctx
}

// start starts claimed jobs, and returns those that River's client must run.
func (e *executor) start(claimed []riveradapter.Claimed) (rivers []riveradapter.Claimed) {
	tasks, rivers := e.activate(claimed)
	for _, t := range tasks {
		if e.pilot.IsCancelled(t.job.ID) {
			t.cancel(rivertype.ErrJobCancelledRemotely)
		}
		select {
		case e.tasks <- t:
		default:
			go e.runAll(t)
		}
	}
	return rivers
}

// activate makes the tasks of claimed jobs and lets cancel find them. It returns the jobs
// of River's client apart.
func (e *executor) activate(claimed []riveradapter.Claimed) (tasks []*task, rivers []riveradapter.Claimed) {
	tasks = make([]*task, 0, len(claimed))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range claimed {
		if _, ok := e.rivers[c.Job.Kind]; ok {
			rivers = append(rivers, c)
			continue
		}
		t := &task{executor: e, job: c.Job, err: c.Err, unit: e.unitOf(c.Job)}
		t.values = t
		t.parent = e.parent //nolint:fatcontext // not nested: each attempt has its own
		e.active[t.job.ID] = t
		tasks = append(tasks, t)
	}
	if len(tasks) > 0 && !e.watching {
		e.watching = true
		time.AfterFunc(watchInterval, e.watch)
	}
	return tasks, rivers
}

// unitOf returns nil for an unknown kind.
func (e *executor) unitOf(job *rivertype.JobRow) unit {
	if w := e.definitions.of(job.Kind); w != nil {
		return definedUnit{w, job}
	}
	if kind, ok := e.kinds[job.Kind]; ok {
		return kind.unit(job)
	}
	return nil
}

// cancel cancels the attempt of a job, if it runs here.
func (e *executor) cancel(jobID int64) {
	e.mu.Lock()
	t := e.active[jobID]
	e.mu.Unlock()
	if t != nil {
		t.cancel(rivertype.ErrJobCancelledRemotely)
	}
}

// cancelAll cancels all running attempts.
func (e *executor) cancelAll(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.active {
		t.cancel(cause)
	}
}

// watch reports stuck attempts. Without any attempt, it ends the goroutines without work
// and does not run again until the next start.
func (e *executor) watch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.active) == 0 {
		e.watching = false
		close(e.retire)
		e.retire = make(chan struct{})
		return
	}
	now := time.Now()
	for _, t := range e.active {
		if !t.stuck && !t.stuckAt.IsZero() && now.After(t.stuckAt) {
			t.stuck = true
			e.logger.Warn("job appears to be stuck: its worker does not return after its timeout", "job_id", t.job.ID, "job", t.job.Kind)
		}
	}
	time.AfterFunc(watchInterval, e.watch)
}

// runAll runs the task and then others, until there has been none for a while. A worker
// that ends its goroutine ends this one, after its attempt's end was recorded.
func (e *executor) runAll(t *task) {
	growStack(stackRoom - 1)
	for {
		e.run(t)
		e.mu.Lock()
		retire := e.retire
		e.mu.Unlock()
		select {
		case t = <-e.tasks:
		case <-retire:
			return
		}
	}
}

// run runs one attempt and passes its end to the pilot.
func (e *executor) run(t *task) {
	e.recorder.begin(t.job, &t.attempt)
	started := time.Now()
	end := attemptEnd{err: errExited}
	defer func() {
		if value := recover(); value == errStopped { //nolint:errorlint // the value of visit
			end.err = errStopped
		} else if value != nil {
			end.err, end.panicked, end.trace = errPanic, truncateText(fmt.Sprint(value)), stack()
		}
		e.finish(t, started, end)
	}()
	end.err = sanitizeError(e.call(t, started))
}

// call calls the worker.
func (e *executor) call(t *task, started time.Time) error {
	if t.err != nil {
		return fmt.Errorf("job row couldn't be decoded: %w", t.err)
	}
	if t.unit == nil {
		return &rivertype.UnknownJobKindError{Kind: t.job.Kind}
	}
	chain := e.chain(t.unit)
	if len(chain) == 0 {
		limit, err := e.prepare(t, started)
		if err != nil {
			return err
		}
		if limit > 0 {
			t.setDeadline(started.Add(limit))
		}
		return t.unit.work(&t.attemptContext)
	}
	return e.callThrough(t, chain)
}

// chain returns the middleware of a job, the outermost first.
func (e *executor) chain(u unit) []rivertype.WorkerMiddleware {
	own := u.middleware()
	if len(e.outer) == 0 {
		return own
	}
	return slices.Concat(e.outer, own)
}

// prepare decodes the arguments and returns the time limit; 0 means none.
func (e *executor) prepare(t *task, now time.Time) (time.Duration, error) {
	if err := t.unit.decode(); err != nil {
		return 0, err
	}
	t.decoded = true
	limit := t.unit.limit()
	if limit == 0 {
		limit = defaultTimeout
	}
	if limit < 0 {
		return 0, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.stuckAt = now.Add(limit + stuckAfter)
	return limit, nil
}

// callThrough calls the worker through its middleware. As in River, the first one is the
// outermost, and decoding and timeout are inside.
func (e *executor) callThrough(t *task, chain []rivertype.WorkerMiddleware) error {
	next := func(ctx context.Context) error {
		limit, err := e.prepare(t, time.Now())
		if err != nil {
			return err
		}
		if limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		return t.unit.work(ctx)
	}
	for _, outer := range slices.Backward(chain) {
		inner := next
		next = func(ctx context.Context) error { return outer.Work(ctx, t.job, inner) }
	}
	return next(&t.attemptContext)
}

// finish records the end of an attempt.
func (e *executor) finish(t *task, started time.Time, end attemptEnd) {
	end.cause = t.cancelled()
	recorded := e.recorder.end(&t.attemptContext, &t.attempt, started, end.cause, end.err)
	result := e.result(t, started, end, recorded)
	t.end()
	e.mu.Lock()
	delete(e.active, t.job.ID)
	stuck := t.stuck
	e.mu.Unlock()
	if stuck {
		e.logger.Info("job became unstuck: its worker has returned", "job_id", t.job.ID, "job", t.job.Kind)
	}
	if t.guest != nil {
		e.guests.remove(t.job)
		t.guest.end <- end // River's executor sets the state
		return
	}
	e.pilot.Ended(result)
}
