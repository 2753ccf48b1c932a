package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// longestReading bounds a read.
const longestReading = time.Minute

// Cache shares one read among all callers within a while. It keeps a slow read for longer,
// so that reading takes at most a twentieth of the time. It reads in the background: a read
// that takes longer than a request ends for the next one.
type Cache[T any] struct {
	keep time.Duration
	// lifetime ends a running read when it ends; nil means that reads are not ended.
	lifetime context.Context //nolint:containedctx // the context of the node, not of a call
	read     func(context.Context) (T, error)
	// timeout is how long Latest waits for a read. failed gets the errors of a cache that
	// callers read with Latest; they are cached. It is nil if callers use Get.
	timeout time.Duration
	failed  func(context.Context, error)

	mu    sync.Mutex
	until time.Time
	last  CachedValue[T]
	// underWay is the running read; nil if none is running.
	underWay *sharedRead[T]
}

// CachedValue is the result of the last read. At is when the read began, by the clock of
// the page that started it; zero if there is no result yet. Slow reports that the read
// exceeded the timeout.
type CachedValue[T any] struct {
	Value T
	At    time.Time
	Slow  bool
}

// sharedRead is a read that callers wait for. Its value and error are set when done is closed.
type sharedRead[T any] struct {
	began time.Time // by the clock of the caller
	done  chan struct{}
	value T
	err   error
	// panicked is the value and the stack of a panic; empty if there was none. err is set, too.
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
		joined := m.current(ctx, time.Now())
		if joined == nil {
			defer m.mu.Unlock()
			if m.over() {
				return value, m.lifetime.Err()
			}
			return m.last.Value, nil
		}
		outdated := joined.outdated
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

// Latest returns the result of the last read, however old it is. It waits up to the timeout
// for a running read, unless the last one was slow. now is the clock of the page.
func (m *Cache[T]) Latest(ctx context.Context, now time.Time) CachedValue[T] {
	m.mu.Lock()
	reading, last := m.current(ctx, now), m.last
	m.mu.Unlock()
	if reading == nil || last.Slow {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	select {
	case <-reading.done:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Wait waits for a running read. Call it after the lifetime has ended.
func (m *Cache[T]) Wait() {
	m.mu.Lock()
	reading := m.underWay
	m.mu.Unlock()
	if reading != nil {
		<-reading.done
	}
}

// current returns the running read. It starts one if the value has expired and the lifetime
// has not ended.
func (m *Cache[T]) current(ctx context.Context, now time.Time) *sharedRead[T] {
	if m.underWay == nil && !m.over() && !time.Now().Before(m.until) {
		m.underWay = &sharedRead[T]{began: now, done: make(chan struct{})}
		go m.renew(context.WithoutCancel(ctx), m.underWay)
	}
	return m.underWay
}

// over reports that no more reads may start.
func (m *Cache[T]) over() bool { return m.lifetime != nil && m.lifetime.Err() != nil }

// renew reads the value and caches it. If reading fails, it keeps the last one.
func (m *Cache[T]) renew(ctx context.Context, r *sharedRead[T]) {
	ctx, cancel := context.WithTimeout(ctx, longestReading)
	defer cancel()
	if m.lifetime != nil {
		defer context.AfterFunc(m.lifetime, cancel)() //nolint:contextcheck // the context of the node, see above
	}
	start := time.Now()
	r.run(ctx, m.read)
	took := time.Since(start)
	if r.err != nil && m.failed != nil && !errors.Is(ctx.Err(), context.Canceled) {
		m.failed(ctx, r.err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.err == nil {
		m.last = CachedValue[T]{r.value, r.began, took > m.timeout}
	}
	if !r.outdated && (r.err == nil || m.failed != nil) {
		m.until = time.Now().Add(max(m.keep, 20*took))
	}
	m.underWay = nil
	close(r.done)
}

func (r *sharedRead[T]) run(ctx context.Context, read func(context.Context) (T, error)) {
	defer func() {
		if problem := recover(); problem != nil {
			r.panicked = fmt.Sprintf("%v\n%s", problem, debug.Stack())
			r.err = errors.New(r.panicked) //nolint:err113 // the text is all there is
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
