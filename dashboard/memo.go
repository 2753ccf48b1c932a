package dashboard

import (
	"context"
	"errors"
	"sync"
	"time"
)

// memo shares one reading among all who ask for it within a while. A reading
// that takes long is kept for longer, so that it never takes more than a
// twentieth of the database's time.
type memo[T any] struct {
	keep time.Duration
	read func(context.Context) (T, error)

	mu    sync.Mutex
	until time.Time
	value T
}

func newMemo[T any](keep time.Duration, read func(context.Context) (T, error)) *memo[T] {
	return &memo[T]{keep: keep, read: read}
}

// get holds the lock while it reads: those who ask meanwhile want the same
// answer. Errors are not kept.
func (m *memo[T]) get(ctx context.Context) (T, error) {
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

// forget has the next who asks read again.
func (m *memo[T]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = time.Time{}
}

// reading is what was read last. At is when that began, by the clock of the page that
// asked for it; zero: nothing is known yet. slow: nobody waited for it.
type reading[T any] struct {
	value T
	at    time.Time
	slow  bool
}

// latest is of a reading that takes the longer the more there is to read. It goes on
// behind the backs of those who ask: they wait for a quick one, and else are given the
// last, however old.
type latest[T any] struct {
	keep, patience time.Duration
	// lifetime ends a reading that is under way; nil: nothing does.
	lifetime context.Context //nolint:containedctx // of the node, not of a call
	read     func(context.Context) (T, error)
	failed   func(context.Context, error)

	mu    sync.Mutex
	until time.Time
	last  reading[T]
	// underWay is closed when the one under way is over; nil: there is none.
	underWay chan struct{}
}

// longestReading bounds one that nobody waits for.
const longestReading = time.Minute

// get takes the clock of the page that asks.
func (l *latest[T]) get(ctx context.Context, now time.Time) reading[T] {
	l.mu.Lock()
	if l.underWay == nil && !time.Now().Before(l.until) && !l.over() {
		l.underWay = make(chan struct{})
		go l.renew(context.WithoutCancel(ctx), now, l.underWay)
	}
	last, reading := l.last, l.underWay
	l.mu.Unlock()
	if reading == nil || last.slow {
		return last
	}
	patience := time.NewTimer(l.patience)
	defer patience.Stop()
	select {
	case <-reading:
	case <-patience.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// over says that no reading begins any more.
func (l *latest[T]) over() bool { return l.lifetime != nil && l.lifetime.Err() != nil }

// wait waits for the reading that is under way. Call it when the lifetime is over.
func (l *latest[T]) wait() {
	l.mu.Lock()
	underWay := l.underWay
	l.mu.Unlock()
	if underWay != nil {
		<-underWay
	}
}

// renew reads. What it fails to read is as it was known last.
func (l *latest[T]) renew(ctx context.Context, now time.Time, over chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, longestReading)
	defer cancel()
	if l.lifetime != nil {
		defer context.AfterFunc(l.lifetime, cancel)() //nolint:contextcheck // of the node, see above
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
		l.last = reading[T]{value, now, end.Sub(start) > l.patience}
	}
	l.until, l.underWay = end.Add(max(l.keep, 20*end.Sub(start))), nil
	close(over)
}
