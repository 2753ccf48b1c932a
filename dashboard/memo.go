package dashboard

import (
	"context"
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
