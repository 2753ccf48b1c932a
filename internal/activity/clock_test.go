package activity

import (
	"errors"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A stream ends with an error if the database's clock was set back by more than its look-back
// absorbs.
func TestFollowEndsIfClockIsSetBack(t *testing.T) {
	t.Parallel()
	store := New(pgtest.Pool(t))
	for ahead, want := range map[time.Duration]error{10 * time.Second: nil, time.Hour: errClockSetBack} {
		f := &follower{store: store}
		if err := f.readClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.now, f.read = f.now.Add(ahead), time.Now()
		if err := f.readClock(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s ahead: %v, want %v", ahead, err, want)
		}
	}
}

// A stream remembers a bounded number of entries, the newest ones.
func TestFollowRemembersFewEntries(t *testing.T) {
	t.Parallel()
	f := &follower{seen: map[Place]string{}}
	start := time.Unix(0, 0)
	for i := range 2*mostFollowed + 1 {
		f.seen[Place{at: start.Add(time.Duration(i) * time.Microsecond)}] = ""
	}
	f.bound()
	if want := start.Add((mostFollowed + 1) * time.Microsecond); len(f.seen) != mostFollowed || !f.floor.Equal(want) {
		t.Errorf("%d entries since %s, want %d since %s", len(f.seen), f.floor, mostFollowed, want)
	}
}
