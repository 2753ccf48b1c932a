package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
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

func (c *counter) latest(lifetime context.Context) *staleCache[int] {
	return &staleCache[int]{
		keep: 2 * time.Second, timeout: 50 * time.Millisecond, lifetime: lifetime, read: c.read,
		failed: func(_ context.Context, err error) { c.told = append(c.told, err) },
	}
}

func TestStaleCacheWaitsForFastReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: 10 * time.Millisecond}
		l := c.latest(t.Context())
		for want := 1; want < 4; want++ {
			now := time.Now()
			for range 2 { // the second call returns the value of the first
				if got := l.get(t.Context(), now); got.value != want || !got.at.Equal(now) || got.slow {
					t.Errorf("got %+v at %s, want %d", got, now, want)
				}
			}
			time.Sleep(time.Hour)
		}
	})
}

// A read in the background ends with the node, and the node waits for it.
func TestStaleCacheReadsEndWithLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lifetime, end := context.WithCancel(t.Context())
		c := &counter{takes: time.Hour}
		l := c.latest(lifetime)
		l.get(t.Context(), time.Now())
		end()
		l.wait()
		if l.underWay != nil {
			t.Error("the reading goes on")
		}
		time.Sleep(time.Hour)
		if l.get(t.Context(), time.Now()); l.underWay != nil {
			t.Error("another reading began")
		}
	})
}

func TestStaleCacheDoesNotWaitForSlowReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: 3 * time.Second}
		l := c.latest(t.Context())
		begun := time.Now()
		ask := func(want int, at time.Time, waits time.Duration) {
			t.Helper()
			before := time.Now()
			if got := l.get(t.Context(), before); got.value != want || !got.at.Equal(at) || time.Since(before) != waits {
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

func TestStaleCacheKeepsValueOnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lifetime, end := context.WithCancel(t.Context())
		c := &counter{takes: time.Millisecond}
		l := c.latest(lifetime)
		first := l.get(t.Context(), time.Now())
		time.Sleep(time.Minute)
		c.err = errors.New("refused")
		if got := l.get(t.Context(), time.Now()); got != first || len(c.told) != 1 {
			t.Errorf("got %+v, want %+v; told of %v", got, first, c.told)
		}
		time.Sleep(time.Minute)
		c.takes = time.Hour // the read is bounded
		l.get(t.Context(), time.Now())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(c.told) != 2 || !errors.Is(c.told[1], context.DeadlineExceeded) {
			t.Errorf("told of %v", c.told)
		}
		time.Sleep(time.Hour)
		l.get(t.Context(), time.Now())
		end() // the node stops: the running read ends and is not reported as failed
		synctest.Wait()
		if l.underWay != nil || len(c.told) != 2 {
			t.Errorf("a reading is under way: %v, told of %v", l.underWay != nil, c.told)
		}
	})
}

// slowCounts returns counts once it is released.
type slowCounts struct {
	fakeJobs
	let chan struct{}
}

func (s slowCounts) CountsByQueueAndState(ctx context.Context) ([]jobstore.Count, error) {
	select {
	case <-s.let:
		return s.fakeJobs.CountsByQueueAndState(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Pages load before the jobs are counted and say so. Later they show the counts and their
// age.
func TestPagesDoNotWaitForJobCounts(t *testing.T) {
	t.Parallel()
	c := newCluster()
	counts := slowCounts{fakeJobs{c}, make(chan struct{})}
	options := optionsOf(c)
	options.Cluster.Source.Counts, options.Cluster.CountTimeout = counts, time.Nanosecond
	h := New(options)
	s := h.server.cluster
	for _, path := range []string{"/", "/jobs"} {
		if page := get(t, h, path); page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "Jobs are being counted.") || strings.Contains(page.Body.String(), "all <span") {
			t.Errorf("%s: %d %s", path, page.Code, page.Body)
		}
	}
	if page := get(t, h, "/").Body.String(); !strings.Contains(page, `<span class="tile-value">–</span>`) || strings.Contains(page, "0 completed") {
		t.Errorf("what is not counted is nought:\n%s", page)
	}
	if page := get(t, h, "/jobs?kind=dump").Body.String(); strings.Contains(page, "counted") {
		t.Error("what has no numbers is being counted")
	}
	close(counts.let)
	s.counts.wait()
	for _, path := range []string{"/", "/jobs"} {
		if page := get(t, h, path).Body.String(); !strings.Contains(page, "Jobs were counted <time") || strings.Contains(page, "are being counted") {
			t.Errorf("%s: %s", path, page)
		}
	}
}
