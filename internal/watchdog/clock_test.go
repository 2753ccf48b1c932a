package watchdog

import (
	"testing"
	"testing/synctest"
	"time"
)

// A late reading adds no more than a punctual one.
func TestClockCountsOnlyProcessRuntime(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := runtimeClock{readAt: start}
	for range 4 {
		start = start.Add(clockInterval)
		c.advance(start)
	}
	if c.counted != 4*clockInterval {
		t.Fatalf("four readings in time count %s", c.counted)
	}
	c.advance(start.Add(time.Hour))
	if want := 4*clockInterval + maxCounted; c.counted != want {
		t.Fatalf("a reading an hour late: %s, want %s", c.counted, want)
	}
	if c.runtime(start.Add(time.Hour+100*time.Millisecond)) != 4*clockInterval+maxCounted+100*time.Millisecond {
		t.Error("time after a late reading does not count")
	}
}

// A loop is not stalled while its process gets no time.
func TestStarvedProcessIsNotStalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := New(3 * time.Second)
		defer w.Stop()
		w.Context(t.Context(), "work")
		time.Sleep(time.Second)
		unread := time.Now().Add(time.Minute) // the clock's readings are delayed like everything else
		if part, stalled := w.Stalled(unread); stalled {
			t.Errorf("part %s is found stalled by time that the process did not have", part)
		}
		time.Sleep(2*time.Second + time.Millisecond)
		if _, stalled := w.Stalled(time.Now()); !stalled {
			t.Error("a loop that hangs in a process that has its time is not found")
		}
	})
}
