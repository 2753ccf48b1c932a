// Package progress lets long work show that it still turns. A leader whose loop
// hangs while its session lives would otherwise keep its role for ever.
//
//	watch := progress.NewWatch(lease)
//	go work(watch.Context(ctx))      // calls Report all the while, and waits with Await or Sleep
//	...
//	part, stalled := watch.Stalled(time.Now())
//
// Work that nobody watches may call everything here too; it has no effect then.
package progress

import (
	"context"
	"sync"
	"time"
)

// share of the patience after which work should report again.
const share = 3

// Watch knows when each part of a piece of work last turned.
type Watch struct {
	patience time.Duration

	mu    sync.Mutex
	parts map[*part]struct{}
}

// part is a loop of its own. One that has begun others is judged by them.
type part struct {
	watch    *Watch
	parent   *part
	name     string
	due      time.Time // zero while it waits for something
	children int
}

// NewWatch returns a Watch of work that must report within patience.
func NewWatch(patience time.Duration) *Watch {
	return &Watch{patience: patience, parts: map[*part]struct{}{}}
}

type key struct{}

// Context begins the watch and returns what the work is to run in.
func (w *Watch) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, w.begin("work", nil))
}

func (w *Watch) begin(name string, parent *part) *part {
	p := &part{watch: w, parent: parent, name: name, due: time.Now().Add(w.patience)}
	w.mu.Lock()
	defer w.mu.Unlock()
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
	p.parent.due = time.Now().Add(p.watch.patience)
}

func (p *part) report(extra time.Duration) {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.due = time.Now().Add(p.watch.patience + extra)
}

func (p *part) park() {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.due = time.Time{}
}

// judged says whether the part has to report: it does not while it waits, nor
// while others stand for it.
func (p *part) judged() bool { return p.children == 0 && !p.due.IsZero() }

// Stalled names a part that should have reported before now.
func (w *Watch) Stalled(now time.Time) (name string, stalled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.parts {
		if p.judged() && now.After(p.due) {
			return p.name, true
		}
	}
	return "", false
}

// Due is when the next part has to have reported, zero while all of them wait.
func (w *Watch) Due() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due time.Time
	for p := range w.parts {
		if p.judged() && (due.IsZero() || p.due.Before(due)) {
			due = p.due
		}
	}
	return due
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

// Report says that the loop turns.
func Report(ctx context.Context) {
	if p := of(ctx); p != nil {
		p.report(0)
	}
}

// Allow says that the loop turns and that its next step, a long statement, may
// take d longer than others.
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

// Interval is how often work that never waits should report.
func Interval(ctx context.Context) time.Duration {
	if p := of(ctx); p != nil {
		return p.watch.patience / share
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
