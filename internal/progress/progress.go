// Package progress detects leader loops that have stalled. A leader whose loop
// hangs while its session lives would otherwise keep its role for ever.
//
//	watch := progress.NewWatch(lease)
//	defer watch.Stop()
//	go work(watch.Context(ctx))      // calls Report all the while, and waits with Await or Sleep
//	...
//	part, stalled := watch.Stalled(time.Now())
//
// A slow loop is not a stalled one. The time that counts is the time that the
// process had (clock): what a busy machine kept from it does not. A loop that waits
// for a statement, or for a connection, is not judged by its own limit either, but
// by statementLimit: statements have deadlines of their own.
//
// Work that nobody watches may call everything here too; it has no effect then.
package progress

import (
	"context"
	"sync"
	"time"
)

const (
	// share of the limit after which work should report again.
	share = 3
	// statementLimit is how much longer than other steps a statement may take. It is
	// for connections that died without a word below a statement without a deadline.
	statementLimit = 2 * time.Minute
)

// Watch knows when each part of a piece of work last reported, by a clock that
// counts the time that the process had.
type Watch struct {
	limit time.Duration

	mu    sync.Mutex
	clock clock
	timer *time.Timer // reads the clock
	ended bool
	parts map[*part]struct{}
}

// part is a loop of its own. One that has begun others is judged by them.
type part struct {
	watch    *Watch
	parent   *part
	name     string
	parked   bool          // it waits for something that may take any time
	due      time.Duration // by the watch's clock
	children int
	// statements are under way in the part's name.
	statements int
}

// NewWatch returns a Watch of work that must report within limit.
func NewWatch(limit time.Duration) *Watch {
	return &Watch{limit: limit, clock: clock{read: time.Now()}, parts: map[*part]struct{}{}}
}

type key struct{}

// Context begins the watch and returns what the work is to run in.
func (w *Watch) Context(ctx context.Context) context.Context {
	w.mu.Lock()
	w.clock.read = time.Now()
	w.timer = time.AfterFunc(tick, w.read)
	w.mu.Unlock()
	return context.WithValue(ctx, key{}, w.begin("work", nil))
}

// read reads the clock, and again after a tick. It runs in a goroutine like those of
// the work: it is late when they are.
func (w *Watch) read() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock.advance(time.Now())
	if !w.ended {
		w.timer.Reset(tick)
	}
}

// Stop stops the clock. Call it when the work has returned.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *Watch) begin(name string, parent *part) *part {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &part{watch: w, parent: parent, name: name}
	p.extend(0)
	w.parts[p] = struct{}{}
	if parent != nil {
		parent.children++
	}
	return p
}

func (p *part) end() {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	if _, running := p.watch.parts[p]; !running {
		return
	}
	delete(p.watch.parts, p)
	p.parent.children--
	p.parent.extend(0)
}

// extend lets the part report next within the limit and some more from now on. The
// caller holds the watch's lock.
func (p *part) extend(extra time.Duration) {
	p.parked, p.due = false, p.watch.clock.had(time.Now())+p.watch.limit+extra
}

func (p *part) report(extra time.Duration) {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.extend(extra)
}

func (p *part) park() {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.parked = true
}

// beginStatement notes that a statement is under way.
func (p *part) beginStatement() {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.statements++
}

// endStatement gives the part its limit from now on. One that waits goes on waiting,
// and one that was allowed more keeps that.
func (p *part) endStatement() {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.statements--
	p.due = max(p.due, p.watch.clock.had(time.Now())+p.watch.limit)
}

// judged says whether the part has to report: it does not while it waits, nor
// while others stand for it.
func (p *part) judged() bool { return p.children == 0 && !p.parked }

// deadline is when a part has to have reported, by the watch's clock.
func (p *part) deadline() time.Duration {
	if p.statements > 0 {
		return p.due + statementLimit
	}
	return p.due
}

// Stalled names a part that should have reported before now.
func (w *Watch) Stalled(now time.Time) (name string, stalled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	had := w.clock.had(now)
	for p := range w.parts {
		if p.judged() && had > p.deadline() {
			return p.name, true
		}
	}
	return "", false
}

// Due is when the next part has to have reported if the process has all of the time
// until then, zero while all of them wait.
func (w *Watch) Due() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due time.Duration
	found := false
	for p := range w.parts {
		if p.judged() && (!found || p.deadline() < due) {
			due, found = p.deadline(), true
		}
	}
	if !found {
		return time.Time{}
	}
	now := time.Now()
	if w.clock.starved(now) {
		return now.Add(tick)
	}
	return now.Add(due - w.clock.had(now))
}

// Had returns how much time the process has had since the watch began.
func (w *Watch) Had() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock.had(time.Now())
}

func of(ctx context.Context) *part {
	p, _ := ctx.Value(key{}).(*part)
	return p
}

// Begin makes a loop that runs beside others a part of its own: one that turns
// does not hide one that hangs. end must be called when the loop has ended.
func Begin(ctx context.Context, name string) (working context.Context, end func()) {
	parent := of(ctx)
	if parent == nil {
		return ctx, func() {}
	}
	p := parent.watch.begin(name, parent)
	return context.WithValue(ctx, key{}, p), p.end
}

// Detach returns a context whose statements and reports count for no part: for what
// runs beside the loop that is watched.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, (*part)(nil))
}

// Report says that the loop turns.
func Report(ctx context.Context) {
	if p := of(ctx); p != nil {
		p.report(0)
	}
}

// Allow says that the loop turns and that its next step may take d longer than
// others.
func Allow(ctx context.Context, d time.Duration) {
	if p := of(ctx); p != nil {
		p.report(d)
	}
}

// Park says that the loop turns and is about to wait for something that may
// take any time. Report ends the wait.
func Park(ctx context.Context) {
	if p := of(ctx); p != nil {
		p.park()
	}
}

// Statement says that the loop waits for the database until end is called; nil:
// nobody watches it.
func Statement(ctx context.Context) (end func()) {
	p := of(ctx)
	if p == nil {
		return nil
	}
	p.beginStatement()
	return sync.OnceFunc(p.endStatement)
}

// Interval is how often work that never waits should report.
func Interval(ctx context.Context) time.Duration {
	if p := of(ctx); p != nil {
		return p.watch.limit / share
	}
	return time.Hour
}

// Await waits for c, and is no hanging meanwhile. It returns false when ctx
// ended first.
func Await[T any](ctx context.Context, c <-chan T) bool {
	Park(ctx)
	defer Report(ctx)
	select {
	case <-ctx.Done():
		return false
	case <-c:
		return true
	}
}

// Sleep waits for d, and is no hanging meanwhile. It returns false when ctx
// ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return Await(ctx, timer.C)
}
