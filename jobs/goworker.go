package jobs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// AddWorker adds a worker as river.AddWorker does. forge's own executor runs its jobs,
// which costs about half as much as with River's. If the arguments of the kind have hooks or
// plugins for the work, or the worker has resumable steps, River's client runs the jobs,
// as it does for workers that were added with river.AddWorker. AddWorker panics if the kind
// has a worker.
func AddWorker[T river.JobArgs](workers *river.Workers, worker river.Worker[T]) {
	own := &ownWorker[T]{worker: worker, guests: newGuests()}
	river.AddWorkerArgs(workers, ownArgs[T]{worker: own}, &riverWorker[T]{own})
}

// goKind makes the units of a Go program's kind.
type goKind interface {
	unit(job *rivertype.JobRow) unit
	// needsRiver returns why River's client must run the kind; empty if forge's executor can.
	needsRiver() string
	// share sets the guests of River's client.
	share(all *guests)
}

// ownWorker is a worker that was added with AddWorker. River stores it as a hook of the
// kind's arguments, which does nothing there, and shows the hooks of all kinds to the
// pilot.
type ownWorker[T river.JobArgs] struct {
	river.HookDefaults

	worker river.Worker[T]
	guests *guests
}

var _ rivertype.Hook = (*ownWorker[river.JobArgs])(nil)

func (w *ownWorker[T]) unit(job *rivertype.JobRow) unit {
	return &goUnit[T]{job: river.Job[T]{JobRow: job}, worker: w.worker}
}

func (w *ownWorker[T]) share(all *guests) { w.guests = all }

func (w *ownWorker[T]) needsRiver() string {
	var args ownArgs[T]
	for _, hook := range args.Hooks() {
		switch hook.(type) {
		case rivertype.HookWorkBegin, rivertype.HookWorkEnd:
			return "its arguments have hooks"
		}
	}
	for _, plugin := range args.Plugins() {
		switch plugin.(type) {
		case rivertype.HookWorkBegin, rivertype.HookWorkEnd, rivertype.WorkerMiddleware:
			return "its arguments have plugins"
		}
	}
	return ""
}

// goUnit runs a job of a Go program.
type goUnit[T river.JobArgs] struct {
	job    river.Job[T]
	worker river.Worker[T]
}

func (u *goUnit[T]) middleware() []rivertype.WorkerMiddleware {
	return u.worker.Middleware(u.job.JobRow)
}

func (u *goUnit[T]) decode() error { return json.Unmarshal(u.job.EncodedArgs, &u.job.Args) }

func (u *goUnit[T]) limit() time.Duration { return u.worker.Timeout(&u.job) }

func (u *goUnit[T]) work(ctx context.Context) error { return u.worker.Work(ctx, &u.job) }

func (u *goUnit[T]) nextRetry() time.Time { return u.worker.NextRetry(&u.job) }

// ownArgs are arguments as River knows them: those of the program and the hook of
// AddWorker.
type ownArgs[T river.JobArgs] struct {
	args   T
	worker *ownWorker[T] // only in the value that AddWorker passes to River
}

// Kind implements river.JobArgs.
func (a ownArgs[T]) Kind() string { return a.args.Kind() }

// KindAliases implements river.JobArgsWithKindAliases.
func (a ownArgs[T]) KindAliases() []string {
	if args, ok := any(a.args).(river.JobArgsWithKindAliases); ok {
		return args.KindAliases()
	}
	return nil
}

// Hooks implements river.JobArgsWithHooks.
func (a ownArgs[T]) Hooks() (hooks []rivertype.Hook) {
	if args, ok := any(a.args).(river.JobArgsWithHooks); ok {
		hooks = append(hooks, args.Hooks()...)
	}
	if a.worker != nil {
		hooks = append(hooks, a.worker)
	}
	return hooks
}

// Plugins returns the plugins of the program's arguments to River.
func (a ownArgs[T]) Plugins() []rivertype.Plugin {
	if args, ok := any(a.args).(interface{ Plugins() []rivertype.Plugin }); ok {
		return args.Plugins()
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *ownArgs[T]) UnmarshalJSON(body []byte) error { return json.Unmarshal(body, &a.args) }

// riverWorker is the worker of a kind for River's client.
type riverWorker[T river.JobArgs] struct{ own *ownWorker[T] }

func programsJob[T river.JobArgs](job *river.Job[ownArgs[T]]) *river.Job[T] {
	return &river.Job[T]{JobRow: job.JobRow, Args: job.Args.args}
}

// Middleware implements river.Worker. The middleware of a guest runs on forge's executor.
func (w *riverWorker[T]) Middleware(job *rivertype.JobRow) []rivertype.WorkerMiddleware {
	if w.own.guests.of(job) != nil {
		return nil
	}
	return w.own.worker.Middleware(job)
}

// NextRetry implements river.Worker.
func (w *riverWorker[T]) NextRetry(job *river.Job[ownArgs[T]]) time.Time {
	return w.own.worker.NextRetry(programsJob(job))
}

// Timeout implements river.Worker. The timeout of a guest runs on forge's executor.
func (w *riverWorker[T]) Timeout(job *river.Job[ownArgs[T]]) time.Duration {
	if w.own.guests.of(job.JobRow) != nil {
		return -1
	}
	return w.own.worker.Timeout(programsJob(job))
}

// Work implements river.Worker.
func (w *riverWorker[T]) Work(ctx context.Context, job *river.Job[ownArgs[T]]) error {
	if guest := w.own.guests.of(job.JobRow); guest != nil {
		return guest.wait(ctx, func(trace string) { w.own.guests.keepTrace(job.ID, trace) })
	}
	return w.own.worker.Work(ctx, programsJob(job))
}
