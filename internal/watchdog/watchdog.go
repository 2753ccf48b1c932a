// Package watchdog detects leader loops that have stalled. A leader whose loop
// hangs while its database session stays open would otherwise keep its role forever.
//
//	watch := watchdog.New(lease)
//	defer watch.Stop()
//	go work(watch.Context(ctx, "loop")) // calls Report regularly, and waits with Await or Sleep
//	...
//	part, stalled := watch.Stalled(time.Now())
//
// A slow loop is not a stalled one. Only the time that was available to the process
// counts (runtimeClock). A loop that waits for a statement or for a connection gets
// statementAllowance in addition to its limit: statements have their own deadlines.
//
// Unwatched work may call every function here; the calls have no effect.
//
// StarvationMeter measures the time that the process waits for a processor.
// RunHighPriority runs renewals and heartbeats on their own threads, with a raised
// priority where the system allows it.
package watchdog

import (
	"context"
	"sync"
	"time"
)

const (
	// intervalDivisor divides the limit into report intervals.
	intervalDivisor = 3
	// statementAllowance is how much longer than other steps a statement may take.
	// It covers connections that fail silently during a statement without a
	// deadline.
	statementAllowance = 2 * time.Minute
)

// Watchdog records when each part of some work last reported, by a clock that
// counts the time that was available to the process.
type Watchdog struct {
	limit time.Duration

	mu    sync.Mutex
	clock runtimeClock
	timer *time.Timer // reads the clock
	ended bool
	parts map[*part]struct{}
}

// part is one loop. While it has child parts, only the children are checked.
type part struct {
	watchdog *Watchdog
	parent   *part
	name     string
	paused   bool          // waits for something that may take any time
	due      time.Duration // by the watchdog's clock
	children int
	// statements counts the statements that run for the part.
	statements int
}

// New returns a Watchdog, whose clock runs until Stop, for work that must report within
// limit.
func New(limit time.Duration) *Watchdog {
	w := &Watchdog{limit: limit, clock: runtimeClock{readAt: time.Now()}, parts: map[*part]struct{}{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(clockInterval, w.read)
	return w
}

type key struct{}

// Context begins a part and returns its context. From now on the part must report.
func (w *Watchdog) Context(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, key{}, w.begin(name, nil))
}

// read reads the clock and schedules the next reading. It runs in a goroutine like
// those of the work, so it is delayed when they are.
func (w *Watchdog) read() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock.advance(time.Now())
	if !w.ended {
		w.timer.Reset(clockInterval)
	}
}

// Stop stops the clock. Call it when the work has returned.
func (w *Watchdog) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}

func (w *Watchdog) begin(name string, parent *part) *part {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &part{watchdog: w, parent: parent, name: name}
	p.extend(0)
	w.parts[p] = struct{}{}
	if parent != nil {
		parent.children++
	}
	return p
}

func (p *part) end() {
	p.watchdog.mu.Lock()
	defer p.watchdog.mu.Unlock()
	if _, running := p.watchdog.parts[p]; !running {
		return
	}
	delete(p.watchdog.parts, p)
	p.parent.children--
	p.parent.extend(0)
}

// extend moves the part's deadline to the limit plus extra from now. The caller
// holds the watchdog's lock.
func (p *part) extend(extra time.Duration) {
	p.paused, p.due = false, p.watchdog.clock.runtime(time.Now())+p.watchdog.limit+extra
}

func (p *part) report(extra time.Duration) {
	p.watchdog.mu.Lock()
	defer p.watchdog.mu.Unlock()
	p.extend(extra)
}

func (p *part) pause() {
	p.watchdog.mu.Lock()
	defer p.watchdog.mu.Unlock()
	p.paused = true
}

// beginStatement records that a statement is running.
func (p *part) beginStatement() {
	p.watchdog.mu.Lock()
	defer p.watchdog.mu.Unlock()
	p.statements++
}

// endStatement moves the part's deadline to the limit from now. A paused part stays
// paused, and a later deadline is kept.
func (p *part) endStatement() {
	p.watchdog.mu.Lock()
	defer p.watchdog.mu.Unlock()
	p.statements--
	p.due = max(p.due, p.watchdog.clock.runtime(time.Now())+p.watchdog.limit)
}

// mustReport reports whether the part has a deadline: it has none while it is
// paused or has child parts.
func (p *part) mustReport() bool { return p.children == 0 && !p.paused }

// deadline returns the time by which a part has to report, by the watchdog's clock.
func (p *part) deadline() time.Duration {
	if p.statements > 0 {
		return p.due + statementAllowance
	}
	return p.due
}

// Stalled returns the name of a part whose deadline has passed.
func (w *Watchdog) Stalled(now time.Time) (name string, stalled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	runtime := w.clock.runtime(now)
	for p := range w.parts {
		if p.mustReport() && runtime > p.deadline() {
			return p.name, true
		}
	}
	return "", false
}

// Due returns the next deadline of a part, assuming that the process gets all of
// the time until then. It is zero while all parts are paused.
func (w *Watchdog) Due() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due time.Duration
	found := false
	for p := range w.parts {
		if p.mustReport() && (!found || p.deadline() < due) {
			due, found = p.deadline(), true
		}
	}
	if !found {
		return time.Time{}
	}
	now := time.Now()
	if w.clock.starved(now) {
		return now.Add(clockInterval)
	}
	return now.Add(due - w.clock.runtime(now))
}

// Runtime returns how much time was available to the process since the watchdog
// started.
func (w *Watchdog) Runtime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock.runtime(time.Now())
}

func partOf(ctx context.Context) *part {
	p, _ := ctx.Value(key{}).(*part)
	return p
}

// Begin makes a loop that runs beside others its own part, so that a running loop
// does not hide a stalled one. Call end when the loop has ended.
func Begin(ctx context.Context, name string) (working context.Context, end func()) {
	parent := partOf(ctx)
	if parent == nil {
		return ctx, func() {}
	}
	p := parent.watchdog.begin(name, parent)
	return context.WithValue(ctx, key{}, p), p.end
}

// Detach returns a context whose statements and reports count for no part, for work
// that runs beside the watched loop.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, (*part)(nil))
}

// Report records that the loop is running.
func Report(ctx context.Context) {
	if p := partOf(ctx); p != nil {
		p.report(0)
	}
}

// Extend records that the loop is running and that its next step may take d longer
// than others.
func Extend(ctx context.Context, d time.Duration) {
	if p := partOf(ctx); p != nil {
		p.report(d)
	}
}

// Pause records that the loop is running and is about to wait for something that
// may take any time. Report ends the wait.
func Pause(ctx context.Context) {
	if p := partOf(ctx); p != nil {
		p.pause()
	}
}

// Statement records that the loop waits for the database until end is called. end
// is nil if there is no watchdog.
func Statement(ctx context.Context) (end func()) {
	p := partOf(ctx)
	if p == nil {
		return nil
	}
	p.beginStatement()
	return sync.OnceFunc(p.endStatement)
}

// Interval returns how often work that never waits should report.
func Interval(ctx context.Context) time.Duration {
	if p := partOf(ctx); p != nil {
		return p.watchdog.limit / intervalDivisor
	}
	return time.Hour
}

// Await waits for c; the wait does not count as a stall. It returns false if ctx
// ended first.
func Await[T any](ctx context.Context, c <-chan T) bool {
	Pause(ctx)
	defer Report(ctx)
	select {
	case <-ctx.Done():
		return false
	case <-c:
		return true
	}
}

// Sleep waits for d; the wait does not count as a stall. It returns false if ctx
// ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return Await(ctx, timer.C)
}
