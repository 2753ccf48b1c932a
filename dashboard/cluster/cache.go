package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Cache shares one read among all callers within a while. It keeps a slow read for longer,
// so that reading takes at most a twentieth of the time. It reads in the background: a read
// that takes longer than a request ends for the next one.
type Cache[T any] struct {
	keep time.Duration
	// lifetime ends a running read when it ends; nil means that reads are not ended.
	lifetime context.Context //nolint:containedctx // the context of the node, not of a call
	read     func(context.Context) (T, error)

	mu    sync.Mutex
	until time.Time
	value T
	// underWay is the running read; nil if none is running.
	underWay *sharedRead[T]
}

// sharedRead is a read that callers wait for. Its value and error are set when done is closed.
type sharedRead[T any] struct {
	done  chan struct{}
	value T
	err   error
	// panicked is the value and the stack of a panic; empty if there was none.
	panicked string
	// outdated reports that the cache was told to forget after the read had begun.
	outdated bool
}

// NewCache returns a cache that keeps a value for a while.
func NewCache[T any](lifetime context.Context, keep time.Duration, read func(context.Context) (T, error)) *Cache[T] {
	return &Cache[T]{keep: keep, lifetime: lifetime, read: read}
}

// Get returns the value. Concurrent callers wait for the same read, each until its ctx ends.
// Errors are not cached.
func (m *Cache[T]) Get(ctx context.Context) (value T, err error) {
	for {
		m.mu.Lock()
		if time.Now().Before(m.until) {
			defer m.mu.Unlock()
			return m.value, nil
		}
		if m.underWay == nil {
			m.underWay = &sharedRead[T]{done: make(chan struct{})}
			go m.renew(context.WithoutCancel(ctx), m.underWay)
		}
		joined, outdated := m.underWay, m.underWay.outdated
		m.mu.Unlock()
		select {
		case <-joined.done:
		case <-ctx.Done():
			return value, ctx.Err()
		}
		if joined.panicked != "" {
			panic(joined.panicked) // the request recovers it
		}
		if !outdated {
			return joined.value, joined.err
		}
	}
}

// renew reads the value and caches it.
func (m *Cache[T]) renew(ctx context.Context, r *sharedRead[T]) {
	ctx, cancel := context.WithTimeout(ctx, longestReading)
	defer cancel()
	if m.lifetime != nil {
		defer context.AfterFunc(m.lifetime, cancel)() //nolint:contextcheck // the context of the node, see above
	}
	start := time.Now()
	r.run(ctx, m.read)
	end := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.err == nil && r.panicked == "" {
		m.value = r.value
		if !r.outdated {
			m.until = end.Add(max(m.keep, 20*end.Sub(start)))
		}
	}
	m.underWay = nil
	close(r.done)
}

func (r *sharedRead[T]) run(ctx context.Context, read func(context.Context) (T, error)) {
	defer func() {
		if problem := recover(); problem != nil {
			r.panicked = fmt.Sprintf("%v\n%s", problem, debug.Stack())
		}
	}()
	r.value, r.err = read(ctx)
}

// Forget makes the next get read again. In a context of [DeferForgets] it does so later.
func (m *Cache[T]) Forget(ctx context.Context) {
	if deferred, ok := ctx.Value(forgetsKey{}).(*[]func()); ok {
		*deferred = append(*deferred, m.forget)
		return
	}
	m.forget()
}

func (m *Cache[T]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = time.Time{}
	if m.underWay != nil {
		m.underWay.outdated = true
	}
}

type forgetsKey struct{}

// DeferForgets returns a context that delays [Cache.Forget] until flush is called. A request
// calls flush after its transaction, because a read before the commit caches the old state.
func DeferForgets(ctx context.Context) (deferring context.Context, flush func()) {
	deferred := new([]func())
	return context.WithValue(ctx, forgetsKey{}, deferred), func() {
		for _, forget := range *deferred {
			forget()
		}
	}
}

// CachedValue is the result of the last read. at is when the read began, by the clock of
// the page that started it; zero if there is no result yet. slow reports that the read
// exceeded the timeout.
type CachedValue[T any] struct {
	Value T
	At    time.Time
	Slow  bool
}

// staleCache is a cache for a read whose duration grows with the data. It reads in the
// background: get waits up to timeout for the read, then returns the last value however old
// it is.
type staleCache[T any] struct {
	keep, timeout time.Duration
	// lifetime ends a running read when it ends; nil means that reads are not ended.
	lifetime context.Context //nolint:containedctx // the context of the node, not of a call
	read     func(context.Context) (T, error)
	failed   func(context.Context, error)

	mu    sync.Mutex
	until time.Time
	last  CachedValue[T]
	// underWay is closed when the running read has ended; nil if none is running.
	underWay chan struct{}
}

// longestReading bounds a read in the background.
const longestReading = time.Minute

// Get returns the last value. now is the clock of the page.
func (l *staleCache[T]) Get(ctx context.Context, now time.Time) CachedValue[T] {
	l.mu.Lock()
	if l.underWay == nil && !time.Now().Before(l.until) && !l.over() {
		l.underWay = make(chan struct{})
		go l.renew(context.WithoutCancel(ctx), now, l.underWay)
	}
	last, reading := l.last, l.underWay
	l.mu.Unlock()
	if reading == nil || last.Slow {
		return last
	}
	timeout := time.NewTimer(l.timeout)
	defer timeout.Stop()
	select {
	case <-reading:
	case <-timeout.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// over reports that no more reads may start.
func (l *staleCache[T]) over() bool { return l.lifetime != nil && l.lifetime.Err() != nil }

// Wait waits for a running read. Call it after the lifetime has ended.
func (l *staleCache[T]) Wait() {
	l.mu.Lock()
	underWay := l.underWay
	l.mu.Unlock()
	if underWay != nil {
		<-underWay
	}
}

// renew reads the value. If reading fails, it keeps the last one.
func (l *staleCache[T]) renew(ctx context.Context, now time.Time, over chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, longestReading)
	defer cancel()
	if l.lifetime != nil {
		defer context.AfterFunc(l.lifetime, cancel)() //nolint:contextcheck // the context of the node, see above
	}
	start := time.Now()
	value, err := l.read(ctx)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		l.failed(ctx, err)
	}
	end := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.last = CachedValue[T]{value, now, end.Sub(start) > l.timeout}
	}
	l.until, l.underWay = end.Add(max(l.keep, 20*end.Sub(start))), nil
	close(over)
}
