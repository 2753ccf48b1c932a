package auth

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestQuotaLimitsEachCaller(t *testing.T) {
	t.Parallel()
	q := newQuota(3, 2, 0)
	ctx := t.Context()
	first, second := q.Acquire(ctx, "a", 1, 0), q.Acquire(ctx, "a", 1, 0)
	if first == nil || second == nil || q.Acquire(ctx, "a", 1, 0) != nil {
		t.Fatal("a caller gets two")
	}
	other := q.Acquire(ctx, "b", 1, 0)
	if other == nil || q.Acquire(ctx, "c", 1, 0) != nil {
		t.Fatal("there are three")
	}
	first()
	first() // a repeated release has no effect
	if q.Acquire(ctx, "c", 1, 0) == nil || q.Acquire(ctx, "d", 1, 0) != nil {
		t.Error("one was given back")
	}
	if big := newQuota(10, 5, 0).Acquire(ctx, "a", 100, 0); big == nil {
		t.Error("more than there is for a caller is never granted")
	}
}

func TestQuotaGrantsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(1, 1, 2)
		held := q.Acquire(t.Context(), "a", 1, 0)
		got := make(chan string, 2)
		for _, who := range []string{"b", "c"} {
			go func() {
				defer q.Acquire(t.Context(), who, 1, time.Minute)()
				got <- who
			}()
			synctest.Wait()
		}
		if q.Acquire(t.Context(), "d", 1, time.Minute) != nil {
			t.Error("the queue has no end")
		}
		held()
		if one, two := <-got, <-got; one != "b" || two != "c" {
			t.Errorf("granted to %s, then %s", one, two)
		}
		synctest.Wait()
		held = q.Acquire(t.Context(), "a", 1, 0)
		start := time.Now()
		if q.Acquire(t.Context(), "b", 1, time.Second) != nil || time.Since(start) != time.Second {
			t.Errorf("waited for %v", time.Since(start))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if q.Acquire(gone, "b", 1, time.Second) != nil {
			t.Error("granted to a caller who is gone")
		}
		held()
		if q.Used != 0 || len(q.of) != 0 || len(q.waiting) != 0 {
			t.Errorf("%d units in use, %d callers, %d waiting", q.Used, len(q.of), len(q.waiting))
		}
	})
}
