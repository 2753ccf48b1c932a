package dashboard

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
	first, second := q.acquire(ctx, "a", 1, 0), q.acquire(ctx, "a", 1, 0)
	if first == nil || second == nil || q.acquire(ctx, "a", 1, 0) != nil {
		t.Fatal("a caller gets two")
	}
	other := q.acquire(ctx, "b", 1, 0)
	if other == nil || q.acquire(ctx, "c", 1, 0) != nil {
		t.Fatal("there are three")
	}
	first()
	first() // a repeated release has no effect
	if q.acquire(ctx, "c", 1, 0) == nil || q.acquire(ctx, "d", 1, 0) != nil {
		t.Error("one was given back")
	}
	if big := newQuota(10, 5, 0).acquire(ctx, "a", 100, 0); big == nil {
		t.Error("more than there is for a caller is never granted")
	}
}

func TestQuotaGrantsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(1, 1, 2)
		held := q.acquire(t.Context(), "a", 1, 0)
		got := make(chan string, 2)
		for _, who := range []string{"b", "c"} {
			go func() {
				defer q.acquire(t.Context(), who, 1, time.Minute)()
				got <- who
			}()
			synctest.Wait()
		}
		if q.acquire(t.Context(), "d", 1, time.Minute) != nil {
			t.Error("the queue has no end")
		}
		held()
		if one, two := <-got, <-got; one != "b" || two != "c" {
			t.Errorf("granted to %s, then %s", one, two)
		}
		synctest.Wait()
		held = q.acquire(t.Context(), "a", 1, 0)
		start := time.Now()
		if q.acquire(t.Context(), "b", 1, time.Second) != nil || time.Since(start) != time.Second {
			t.Errorf("waited for %v", time.Since(start))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if q.acquire(gone, "b", 1, time.Second) != nil {
			t.Error("granted to a caller who is gone")
		}
		held()
		if q.used != 0 || len(q.of) != 0 || len(q.waiting) != 0 {
			t.Errorf("%d units in use, %d callers, %d waiting", q.used, len(q.of), len(q.waiting))
		}
	})
}
