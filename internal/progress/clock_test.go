package progress

import (
	"testing"
	"testing/synctest"
	"time"
)

// A reading that comes late adds no more than one in time does.
func TestClockCountsOnlyTheTimeThatTheProcessHad(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := clock{read: start}
	for range 4 {
		start = start.Add(tick)
		c.advance(start)
	}
	if c.counted != 4*tick {
		t.Fatalf("four readings in time count %s", c.counted)
	}
	c.advance(start.Add(time.Hour))
	if want := 4*tick + granted; c.counted != want {
		t.Fatalf("a reading an hour late: %s, want %s", c.counted, want)
	}
	if c.had(start.Add(time.Hour+100*time.Millisecond)) != 4*tick+granted+100*time.Millisecond {
		t.Error("time after a late reading does not count")
	}
}

// A loop is not judged by time that its process did not have.
func TestStarvedProcessStallsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewWatch(3 * time.Second)
		defer w.Stop()
		w.Context(t.Context())
		time.Sleep(time.Second)
		unread := time.Now().Add(time.Minute) // the clock's readings are as late as everything else
		if part, stalled := w.Stalled(unread); stalled {
			t.Errorf("part %s is found stalled by time that the process did not have", part)
		}
		time.Sleep(2*time.Second + time.Millisecond)
		if _, stalled := w.Stalled(time.Now()); !stalled {
			t.Error("a loop that hangs in a process that has its time is not found")
		}
	})
}
