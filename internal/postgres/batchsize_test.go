package postgres_test

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const batchTarget = time.Second

// run makes batches of which each item takes each, and returns the size of the last
// batch.
func runBatches(s *postgres.BatchSize, batches int, each, overhead time.Duration) int {
	for range batches {
		n := s.Next()
		s.Done(n, overhead+time.Duration(n)*each, overhead)
	}
	return s.Next()
}

func TestSizeFollowsDurationOfBatches(t *testing.T) {
	t.Parallel()
	s := postgres.NewBatchSize(1000, batchTarget)
	if got := runBatches(s, 10, time.Microsecond, 0); got != 1000 || s.Reduced() {
		t.Errorf("fast: %d, reduced %v; want 1000", got, s.Reduced())
	}
	if got := runBatches(s, 10, 20*time.Millisecond, 0); got != 50 || !s.Reduced() {
		t.Errorf("20 ms each: %d, reduced %v; want 50", got, s.Reduced())
	}
	if got := runBatches(s, 10, time.Minute, 0); got != 1 {
		t.Errorf("a minute each: %d; want 1", got)
	}
	if got := runBatches(s, 12, time.Microsecond, 0); got != 1000 {
		t.Errorf("fast again: %d; want 1000", got)
	}
}

func TestSizeHalvesWithEachFailure(t *testing.T) {
	t.Parallel()
	s := postgres.NewBatchSize(500, batchTarget)
	for range 3 {
		s.Failed()
	}
	if got := s.Next(); got != 62 {
		t.Errorf("after three failures: %d", got)
	}
	for range 20 {
		s.Failed()
	}
	if got := s.Next(); got != 1 {
		t.Errorf("after many: %d; want 1", got)
	}
}

// If round trips alone take longer than the batchTarget, smaller batches would only get
// less done.
func TestSizeIgnoresOverhead(t *testing.T) {
	t.Parallel()
	s := postgres.NewBatchSize(100, batchTarget)
	if got := runBatches(s, 10, 10*time.Millisecond, 4*time.Second); got != 100 {
		t.Errorf("slow round trips, fast items: %d; want 100", got)
	}
	if got := runBatches(s, 10, 100*time.Millisecond, 4*time.Second); got != 40 {
		t.Errorf("both slow: %d; want as many as take as long as the overhead, 40", got)
	}
}

// One batch that is slow by chance does not reduce the size to one.
func TestSizeSurvivesOneSlowBatch(t *testing.T) {
	t.Parallel()
	s := postgres.NewBatchSize(1000, batchTarget)
	s.Done(1000, time.Hour, 0)
	if got := s.Next(); got != 250 {
		t.Errorf("after one slow batch: %d; want 250", got)
	}
	s.Done(0, time.Hour, 0)
	if got := s.Next(); got != 250 {
		t.Errorf("an empty batch changed it to %d", got)
	}
}
