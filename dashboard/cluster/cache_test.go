package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// counter is a read that takes a while and returns 1, 2, 3.
type counter struct {
	takes time.Duration
	value int
	err   error
	told  []error
}

func (c *counter) read(ctx context.Context) (int, error) {
	select {
	case <-time.After(c.takes):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if c.err != nil {
		return 0, c.err
	}
	c.value++
	return c.value, nil
}

func (c *counter) latest(lifetime context.Context) *Cache[int] {
	return &Cache[int]{
		keep: 2 * time.Second, timeout: 50 * time.Millisecond, lifetime: lifetime, read: c.read,
		failed: func(_ context.Context, err error) { c.told = append(c.told, err) },
	}
}

func TestLatestWaitsForFastReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: 10 * time.Millisecond}
		l := c.latest(t.Context())
		for want := 1; want < 4; want++ {
			now := time.Now()
			for range 2 { // the second call returns the value of the first
				if got := l.Latest(t.Context(), now); got.Value != want || !got.At.Equal(now) || got.Slow {
					t.Errorf("got %+v at %s, want %d", got, now, want)
				}
			}
			time.Sleep(time.Hour)
		}
	})
}

// A read in the background ends with the node, and the node waits for it.
func TestLatestReadsEndWithLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lifetime, end := context.WithCancel(t.Context())
		c := &counter{takes: time.Hour}
		l := c.latest(lifetime)
		l.Latest(t.Context(), time.Now())
		end()
		l.Wait()
		if l.underWay != nil {
			t.Error("the reading goes on")
		}
		time.Sleep(time.Hour)
		if l.Latest(t.Context(), time.Now()); l.underWay != nil {
			t.Error("another reading began")
		}
	})
}

func TestLatestDoesNotWaitForSlowReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: 3 * time.Second}
		l := c.latest(t.Context())
		begun := time.Now()
		ask := func(want int, at time.Time, waits time.Duration) {
			t.Helper()
			before := time.Now()
			if got := l.Latest(t.Context(), before); got.Value != want || !got.At.Equal(at) || time.Since(before) != waits {
				t.Errorf("got %+v in %v, want %d of %s in %v", got, time.Since(before), want, at, waits)
			}
		}
		ask(0, time.Time{}, 50*time.Millisecond)
		ask(0, time.Time{}, 50*time.Millisecond) // waits for the same read
		time.Sleep(4 * time.Second)
		ask(1, begun, 0)
		time.Sleep(time.Hour)
		again := time.Now()
		ask(1, begun, 0) // the value has expired, so another read starts
		time.Sleep(4 * time.Second)
		ask(2, again, 0)
		time.Sleep(55 * time.Second) // less than twenty times the duration of the read
		ask(2, again, 0)
		time.Sleep(4 * time.Second)
		ask(2, again, 0)
		if c.value != 2 {
			t.Errorf("read %d times, want 2", c.value)
		}
	})
}

func TestLatestKeepsValueOnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lifetime, end := context.WithCancel(t.Context())
		c := &counter{takes: time.Millisecond}
		l := c.latest(lifetime)
		first := l.Latest(t.Context(), time.Now())
		time.Sleep(time.Minute)
		c.err = errors.New("refused")
		if got := l.Latest(t.Context(), time.Now()); got != first || len(c.told) != 1 {
			t.Errorf("got %+v, want %+v; told of %v", got, first, c.told)
		}
		time.Sleep(time.Minute)
		c.takes = time.Hour // the read is bounded
		l.Latest(t.Context(), time.Now())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(c.told) != 2 || !errors.Is(c.told[1], context.DeadlineExceeded) {
			t.Errorf("told of %v", c.told)
		}
		time.Sleep(time.Hour)
		l.Latest(t.Context(), time.Now())
		end() // the node stops: the running read ends and is not reported as failed
		synctest.Wait()
		if l.underWay != nil || len(c.told) != 2 {
			t.Errorf("a reading is under way: %v, told of %v", l.underWay != nil, c.told)
		}
	})
}

// A panic in the background is reported as an error, and does not end the node.
func TestLatestReportsPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		l := c.latest(t.Context())
		l.read = func(context.Context) (int, error) { panic("out of luck") }
		if got := l.Latest(t.Context(), time.Now()); !got.At.IsZero() || len(c.told) != 1 || !strings.HasPrefix(c.told[0].Error(), "out of luck\n") {
			t.Errorf("got %+v, told of %v", got, c.told)
		}
	})
}

// A read that takes longer than a request ends for the next one.
func TestCacheReadsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: 8 * time.Second}
		cache := NewCache(t.Context(), time.Second, c.read)
		request := func() (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return cache.Get(ctx)
		}
		if value, err := request(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in five of eight seconds: %d, %v", value, err)
		}
		if value, err := request(); value != 1 || err != nil {
			t.Errorf("in the next five: %d, %v", value, err)
		}
		time.Sleep(150 * time.Second)
		if value, err := request(); value != 1 || err != nil {
			t.Errorf("a slow read is kept for longer: %d, %v", value, err)
		}
		time.Sleep(15 * time.Second) // the read's duration times 20 is over
		cache.Forget(t.Context())
		if _, err := request(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the value was forgotten: %v", err)
		}
		time.Sleep(10 * time.Second)
	})
}

// What is read after a change is not from before it.
func TestCacheForgetsRunningReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Second}
		cache := NewCache(t.Context(), time.Minute, c.read)
		before := make(chan int)
		go func() {
			value, _ := cache.Get(t.Context())
			before <- value
		}()
		synctest.Wait()
		cache.Forget(t.Context())
		if value, err := cache.Get(t.Context()); value != 2 || err != nil {
			t.Errorf("after the change: %d, %v; want the second read", value, err)
		}
		if value := <-before; value != 1 {
			t.Errorf("before the change: %d, want the first read", value)
		}
		if value, _ := cache.Get(t.Context()); value != 2 {
			t.Errorf("cached: %d, want 2", value)
		}
	})
}

// The end of the node ends its reads.
func TestCacheReadsEndWithLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lifetime, end := context.WithCancel(t.Context())
		cache := NewCache(lifetime, time.Second, (&counter{takes: time.Hour}).read)
		time.AfterFunc(time.Second, end)
		if _, err := cache.Get(t.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the node: %v", err)
		}
	})
}
