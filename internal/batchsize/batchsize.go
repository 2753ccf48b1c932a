// Package batchsize chooses how much work a transaction takes on, by how long those
// before it took. However slow the machine or the database, each transaction stays so
// short that it commits, and what is done stays done.
package batchsize

import (
	"context"
	"time"
)

// Size is the size of the next batch. The zero value is not usable: see New. It is not
// safe for concurrent use.
type Size struct {
	most   int
	target time.Duration
	next   int
}

// New returns the size of batches of at most most items that should take no longer
// than target. The first batch is as large as can be.
func New(most int, target time.Duration) *Size { return &Size{most: most, target: target, next: most} }

// Next is how many items the next batch may have: at least one.
func (s *Size) Next() int { return s.next }

// Reduced says whether batches are smaller than they could be.
func (s *Size) Reduced() bool { return s.next < s.most }

// Done takes in that a batch of n items took so long, of which overhead was for what
// does not depend on n. Where the overhead alone takes most of the target, a batch may
// take as long again: smaller ones would get less done.
func (s *Size) Done(n int, took, overhead time.Duration) {
	if n <= 0 {
		return
	}
	work, allowed := took-overhead, max(s.target-overhead, overhead)
	switch {
	case work > allowed:
		fits := int(float64(n) * float64(allowed) / float64(work))
		s.next = max(1, min(s.next, max(fits, n/4))) // no less, for it may be chance
	case work < allowed/2 && n >= s.next:
		s.next = min(2*s.next, s.most)
	}
}

// Failed takes in that a batch failed, perhaps because it took too long.
func (s *Size) Failed() { s.next = max(1, s.next/2) }

// Do does a batch of at most Next items within a bound, and takes in what came of it.
// work returns how many items it found.
func (s *Size) Do(ctx context.Context, bound time.Duration, work func(ctx context.Context, most int) (int, error)) (int, error) {
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
