package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
)

// UnreadyError is a reason why the node is not ready. Callers without a token may read only
// Public, because Err may name hosts, users and databases.
type UnreadyError struct {
	Public string
	Err    error
}

func (u UnreadyError) Error() string { return u.Err.Error() }

// Unwrap returns the details, which only callers with a token may read.
func (u UnreadyError) Unwrap() error { return u.Err }

// recent shares one read among probes at about the same time, so that many probes cost as
// much as a few.
type recent[T any] struct {
	read func(context.Context) T

	mu    sync.Mutex
	at    time.Time
	value T
}

// keepRecent is how long a read is shared.
const keepRecent = 100 * time.Millisecond

func newRecent[T any](read func(context.Context) T) *recent[T] { return &recent[T]{read: read} }

// Get returns the value. If ctx ends, the read continues for other callers.
func (c *recent[T]) Get(ctx context.Context) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < keepRecent {
		return c.value
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auth.ProbeTimeout)
	defer cancel()
	c.value = c.read(ctx)
	c.at = time.Now()
	return c.value
}

// Causes returns the messages of joined errors.
func Causes(err error, detailed bool) []string {
	if err == nil {
		return nil
	}
	if hidden, ok := err.(UnreadyError); ok && !detailed { //nolint:errorlint // only the error itself; the errors that it wraps are handled below
		return []string{hidden.Public}
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	var all []string
	for _, e := range joined.Unwrap() {
		all = append(all, Causes(e, detailed)...)
	}
	return all
}
