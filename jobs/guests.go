package jobs

import (
	"context"
	"maps"
	"sync"

	"github.com/riverqueue/river/rivertype"
)

// guest is an attempt on forge's executor whose worker needs a value of River's executor.
// River's client gets the job too. Its worker lends its context to the attempt, waits for
// its end and returns it, so that River's executor sets the job's state.
type guest struct {
	arrived chan context.Context // has room for one
	refused chan struct{}        // closed if River's client has stopped
	end     chan attemptEnd      // has room for one
}

// guests contains the guests by the row of their job.
type guests struct {
	// keepTrace stores the stack trace of a panic for River's executor.
	keepTrace func(jobID int64, trace string)

	mu    sync.Mutex
	byRow map[*rivertype.JobRow]*guest
}

func newGuests() *guests { return &guests{byRow: map[*rivertype.JobRow]*guest{}} }

func (g *guests) add(job *rivertype.JobRow) *guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	added := &guest{arrived: make(chan context.Context, 1), refused: make(chan struct{}), end: make(chan attemptEnd, 1)}
	g.byRow[job] = added
	return added
}

// of returns the guest of a job; nil if there is none.
func (g *guests) of(job *rivertype.JobRow) *guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byRow[job]
}

func (g *guests) remove(job *rivertype.JobRow) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byRow, job)
}

// refuse reports whether the job is a guest, which River's client will not run any more.
func (g *guests) refuse(job *rivertype.JobRow) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	refused := g.byRow[job]
	if refused == nil {
		return false
	}
	delete(g.byRow, job)
	close(refused.refused)
	return true
}

// wait is the work of River's worker for a guest.
func (g *guest) wait(ctx context.Context, keepTrace func(trace string)) error {
	g.arrived <- ctx
	end := <-g.end
	if end.trace != "" {
		keepTrace(end.trace)
		panic(end.panicked)
	}
	return end.err
}

// visit makes the attempt a guest of River's executor, if it is none. Later jobs of its
// kind run on River's executor from the start.
func (e *executor) visit(t *task) {
	if t.guest != nil {
		return
	}
	e.moveToRiver(t.job.Kind)
	added := e.guests.add(t.job)
	e.pilot.HandOver(t.job)
	select {
	case ctx := <-added.arrived:
		t.lend(ctx)
		t.guest = added
	case <-added.refused:
		panic(errStopped) // run recovers
	}
}

// lend lets the context use River's map of metadata updates and River's other values.
func (t *task) lend(ctx context.Context) {
	updates, _ := ctx.Value(keysOfRiver.metadata).(map[string]any)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(updates, t.metadata)
	t.metadata, t.lent = updates, ctx
}
