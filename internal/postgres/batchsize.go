package postgres

import (
	"context"
	"time"
)

// BatchSize chooses the amount of work of a transaction from the duration of earlier
// transactions. Even on a slow machine or database, each transaction is short enough to
// commit, so that progress is kept. The zero value is not usable: see NewBatchSize. It is
// not safe for concurrent use.
type BatchSize struct {
	most   int
	target time.Duration
	next   int
}

// NewBatchSize returns the size of batches of at most most items that should take no longer
// than target. The first batch has most items.
func NewBatchSize(most int, target time.Duration) *BatchSize {
	return &BatchSize{most: most, target: target, next: most}
}

// Next returns the number of items that the next batch may have: at least one.
func (s *BatchSize) Next() int { return s.next }

// Reduced reports whether batches are smaller than the maximum.
func (s *BatchSize) Reduced() bool { return s.next < s.most }

// Done records that a batch of n items took took, of which overhead was independent
// of n. If the overhead alone takes most of the target, a batch may take as long
// again: smaller batches would get less done.
func (s *BatchSize) Done(n int, took, overhead time.Duration) {
	if n <= 0 {
		return
	}
	work, allowed := took-overhead, max(s.target-overhead, overhead)
	switch {
	case work > allowed:
		fits := int(float64(n) * float64(allowed) / float64(work))
		s.next = max(1, min(s.next, max(fits, n/4))) // not smaller, because one slow batch may be chance
	case work < allowed/2 && n >= s.next:
		s.next = min(2*s.next, s.most)
	}
}

// Failed records that a batch failed, possibly because it took too long.
func (s *BatchSize) Failed() { s.next = max(1, s.next/2) }

// Do runs a batch of at most Next items with a timeout and records its result. work
// returns how many items it processed.
func (s *BatchSize) Do(ctx context.Context, bound time.Duration, work func(ctx context.Context, most int) (int, error)) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	began := time.Now()
	found, err := work(ctx, s.next)
	if err != nil {
		s.Failed()
		return 0, err
	}
	s.Done(found, time.Since(began), 0)
	return found, nil
}
