package cluster

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Cache shares one read among all callers within a while. It keeps a slow read for longer,
// so that reading takes at most a twentieth of the time.
type Cache[T any] struct {
	keep time.Duration
	read func(context.Context) (T, error)

	mu    sync.Mutex
	until time.Time
	value T
}

// NewCache returns a cache that keeps a value for a while.
func NewCache[T any](keep time.Duration, read func(context.Context) (T, error)) *Cache[T] {
	return &Cache[T]{keep: keep, read: read}
}

// Get holds the lock while it reads, because concurrent callers wait for the same value.
// Errors are not cached.
func (m *Cache[T]) Get(ctx context.Context) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	start := time.Now()
	if start.Before(m.until) {
		return m.value, nil
	}
	value, err := m.read(ctx)
	if err != nil {
		return value, err
	}
	end := time.Now()
	m.value, m.until = value, end.Add(max(m.keep, 20*end.Sub(start)))
	return value, nil
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
