package crons

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

func TestDueHeapPopsPunctualCronsFirst(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	h := newDueHeap()
	h.add(cronstore.Upcoming{Name: "never"}, cronstore.Upcoming{Name: "old", Next: at(-3600)}, cronstore.Upcoming{Name: "late", Next: at(-60)}, cronstore.Upcoming{Name: "now", Next: at(0)},
		cronstore.Upcoming{Name: "soon", Next: at(1)}, cronstore.Upcoming{Name: "recent", Next: at(-59)})
	var got []string
	for range 4 {
		for _, e := range h.pop(noon, 1) {
			got = append(got, e.Name)
		}
	}
	if diff := cmp.Diff([]string{"recent", "now", "late", "old"}, got); diff != "" {
		t.Error(diff)
	}
	if next, ok := h.next(); !ok || !next.Equal(at(1)) {
		t.Errorf("next is %s, %t", next, ok)
	}
	h.add(cronstore.Upcoming{Name: "again", Next: at(0)}, cronstore.Upcoming{Name: "gone", Next: time.Time{}})
	if next, _ := h.next(); !next.Equal(at(0)) {
		t.Errorf("next is %s after add", next)
	}
}

// A leader that fires one cron a second fires each of three crons that are due every
// second.
func TestDueHeapServesEveryCronUnderOverload(t *testing.T) {
	t.Parallel()
	h := newDueHeap()
	h.add(cronstore.Upcoming{Name: "a", Next: noon}, cronstore.Upcoming{Name: "b", Next: noon}, cronstore.Upcoming{Name: "c", Next: noon})
	fires := map[string]int{}
	for second := range 30 {
		now := noon.Add(time.Duration(second) * time.Second)
		for _, e := range h.pop(now, 1) {
			fires[e.Name]++
			h.add(cronstore.Upcoming{Name: e.Name, Next: now.Add(time.Second)})
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 10, "b": 10, "c": 10}, fires); diff != "" {
		t.Error(diff)
	}
}

func TestClockEstimateFollowsObservations(t *testing.T) {
	t.Parallel()
	var c clock
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	c.observe(at(0), at(10), at(1005))
	if got := c.now(at(20)); !got.Equal(at(1020)) {
		t.Fatalf("first estimate %s, want %s", got, at(1020))
	}
	c.observe(at(100), at(300), at(1150)) // a slow round trip that agrees with the estimate
	if got := c.now(at(300)); !got.Equal(at(1300)) {
		t.Errorf("a slow round trip moved the estimate to %s", got)
	}
	c.observe(at(400), at(402), at(1450)) // the database's clock is ahead
	if got := c.now(at(402)); !got.Equal(at(1450)) {
		t.Errorf("estimate %s, want %s", got, at(1450))
	}
	c.observe(at(500), at(502), at(1400)) // the database's clock was set back
	if got := c.now(at(500)); !got.Equal(at(1400)) {
		t.Errorf("estimate %s, want %s", got, at(1400))
	}
}

func TestDueHeapCountsCronsDueTogether(t *testing.T) {
	t.Parallel()
	h := newDueHeap()
	for i := range 1000 {
		h.add(cronstore.Upcoming{Name: strconv.Itoa(i), Next: noon.Add(time.Duration(i%3) * time.Second)})
	}
	if at, n := h.dueTogether(0, 2000); !at.Equal(noon) || n != 334 {
		t.Errorf("batch of %d at %s; want 334 at noon", n, at)
	}
	if at, n := h.dueTogether(time.Second, 2000); !at.Equal(noon.Add(time.Second)) || n != 667 {
		t.Errorf("%d within a second, until %s; want 667", n, at)
	}
	if _, n := h.dueTogether(0, 100); n != 100 {
		t.Errorf("counted %d; want no more than 100", n)
	}
	h.pop(noon.Add(2*onTime), 1)
	if _, n := h.dueTogether(0, 2000); n != 0 {
		t.Errorf("batch of %d while others are late", n)
	}
}
