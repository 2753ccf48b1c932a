package jobs

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errAttemptEnded is the cause of an attempt's context after the attempt.
var errAttemptEnded = errors.New("the attempt has ended")

// valuer provides the values of a context.
type valuer interface {
	value(key any) (value any, ok bool)
}

// attemptContext is the context of an attempt on forge's executor. Whatever waits, such as
// a timer, is made when somebody asks for it: most short attempts never do.
type attemptContext struct {
	parent context.Context //nolint:containedctx // a context itself; never ends
	values valuer

	mu       sync.Mutex
	deadline time.Time
	cause    error           // why it was cancelled; nil if it was not
	inner    context.Context //nolint:containedctx // a context itself
	abort    context.CancelCauseFunc
	stop     context.CancelFunc // of the timer; nil if there is none
	metadata map[string]any     // what the worker adds to the job's metadata; nil until it does
}

var _ context.Context = (*attemptContext)(nil)

// setDeadline must be called before the context is used.
func (c *attemptContext) setDeadline(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = at
}

// made returns the context of package context that ends when this one does.
func (c *attemptContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner
	}
	c.inner, c.abort = context.WithCancelCause(c.parent)
	if c.cause != nil {
		c.abort(c.cause)
	} else if !c.deadline.IsZero() {
		c.inner, c.stop = context.WithDeadline(c.inner, c.deadline)
	}
	return c.inner
}

// cancel ends the context, unless it was cancelled before.
func (c *attemptContext) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	c.cause = cause
	if c.abort != nil {
		c.abort(cause)
	}
}

// cancelled returns why the context was cancelled; nil if it was not. A timeout is no
// cancellation.
func (c *attemptContext) cancelled() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// end releases the timer after the attempt.
func (c *attemptContext) end() {
	c.cancel(errAttemptEnded)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
	}
}

// updates returns the map of the updates to the job's metadata, which the worker's
// goroutine may change.
func (c *attemptContext) updates() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.metadata == nil {
		c.metadata = map[string]any{}
	}
	return c.metadata
}

// Deadline implements context.Context.
func (c *attemptContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, !c.deadline.IsZero()
}

// Done implements context.Context.
func (c *attemptContext) Done() <-chan struct{} { return c.made().Done() }

// Err implements context.Context.
func (c *attemptContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner != nil:
		return c.inner.Err()
	case c.cause != nil:
		return context.Canceled
	case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Value implements context.Context. Package context looks for its own contexts with a key
// of the type *int.
func (c *attemptContext) Value(key any) any {
	if _, ofContext := key.(*int); ofContext {
		return c.made().Value(key)
	}
	if value, ok := c.values.value(key); ok {
		return value
	}
	return c.parent.Value(key)
}
