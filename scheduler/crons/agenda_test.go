package crons

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

func TestAgendaTakesTheFreshestFirst(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	a := newAgenda([]cronstore.Upcoming{
		{Name: "never"},
		{Name: "old", Next: at(-60)},
		{Name: "now", Next: at(0)},
		{Name: "soon", Next: at(1)},
		{Name: "recent", Next: at(-1)},
	})
	var got []string
	for range 2 {
		for _, e := range a.take(noon, 2) {
			got = append(got, e.name)
		}
	}
	if diff := cmp.Diff([]string{"now", "recent", "old"}, got); diff != "" {
		t.Error(diff)
	}
	if next, ok := a.next(); !ok || !next.Equal(at(1)) {
		t.Errorf("next is %s, %t", next, ok)
	}
	a.add(entry{"again", at(0)}, entry{"gone", time.Time{}})
	if next, _ := a.next(); !next.Equal(at(0)) {
		t.Errorf("next is %s after add", next)
	}
}

func TestClockKeepsToWhatItObserved(t *testing.T) {
	t.Parallel()
	var c clock
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	c.observe(at(0), at(10), at(1005))
	if got := c.now(at(20)); !got.Equal(at(1020)) {
		t.Fatalf("first estimate %s, want %s", got, at(1020))
	}
	c.observe(at(100), at(300), at(1150)) // says little, contradicts nothing
	if got := c.now(at(300)); !got.Equal(at(1300)) {
		t.Errorf("a slow round trip moved the estimate to %s", got)
	}
	c.observe(at(400), at(402), at(1450)) // the database's clock is ahead
	if got := c.now(at(402)); !got.Equal(at(1450)) {
		t.Errorf("estimate %s, want %s", got, at(1450))
	}
	c.observe(at(500), at(502), at(1400)) // and was set back
	if got := c.now(at(500)); !got.Equal(at(1400)) {
		t.Errorf("estimate %s, want %s", got, at(1400))
	}
}
