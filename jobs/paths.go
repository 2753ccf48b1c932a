package jobs

import (
	"context"
	"maps"
	"slices"

	"github.com/riverqueue/river/rivertype"
)

// addKinds registers the kinds of a Go program.
func (e *executor) addKinds(workers []*rivertype.WorkerMetadata) {
	for _, worker := range workers {
		if worker.Kind == eventsKind {
			continue
		}
		kind := ownKind(worker.JobArgHooks)
		switch {
		case kind == nil:
			e.rivers[worker.Kind] = "it was added with river.AddWorker"
		case kind.needsRiver() != "":
			e.kinds[worker.Kind], e.rivers[worker.Kind] = kind, kind.needsRiver()
		default:
			kind.share(e.guests)
			e.kinds[worker.Kind] = kind
		}
	}
}

// ownKind returns the hook of a kind that was added with AddWorker; nil for other kinds.
func ownKind(hooks []rivertype.Hook) goKind {
	for _, hook := range hooks {
		if kind, ok := hook.(goKind); ok {
			return kind
		}
	}
	return nil
}

// moveToRiver lets River's client run the later jobs of a kind.
func (e *executor) moveToRiver(kind string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, moved := e.rivers[kind]; moved {
		return
	}
	const reason = "its worker has resumable steps"
	e.rivers[kind] = reason
	e.logger.Info("River's client runs the jobs of some kinds", "jobs", []string{kind}, "reason", reason)
}

// programsKinds returns the kinds of the Go program's workers.
func (e *executor) programsKinds() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	kinds := slices.AppendSeq(slices.Collect(maps.Keys(e.kinds)), maps.Keys(e.rivers))
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// logPaths logs the kinds whose jobs River's client runs.
func (e *executor) logPaths(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	byReason := map[string][]string{}
	for kind, reason := range e.rivers {
		byReason[reason] = append(byReason[reason], kind)
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		kinds := byReason[reason]
		slices.Sort(kinds)
		e.logger.InfoContext(ctx, "River's client runs the jobs of some kinds", "jobs", kinds, "reason", reason)
	}
}

// RiverKinds returns the kinds whose jobs River's client runs instead of forge's executor,
// and why.
func (r *Runner) RiverKinds() map[string]string {
	r.executor.mu.Lock()
	defer r.executor.mu.Unlock()
	return maps.Clone(r.executor.rivers)
}
