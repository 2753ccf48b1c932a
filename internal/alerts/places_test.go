package alerts

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// One receiver gets a few places, and one place of each receiver is left when half of them are used.
func TestPlaces(t *testing.T) {
	t.Parallel()
	p, id := newPlaces(), int64(0)
	fill := func(receiver string) (taken int) {
		for ; p.free(receiver) > 0; taken++ {
			id++
			p.sends[id] = receiver
		}
		return taken
	}
	var got []int
	for _, receiver := range []string{"a", "b", "c", "d", "e", "f", "a"} {
		got = append(got, fill(receiver))
	}
	if diff := cmp.Diff([]int{8, 8, 8, 8, 1, 1, 0}, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	for i := range maxSends {
		fill(time.Duration(i).String())
	}
	if len(p.sends) != maxSends || p.free("new") != 0 || len(p.ids()) != maxSends {
		t.Errorf("%d are sent, and %d more may be", len(p.sends), p.free("new"))
	}
	clear(p.sends)
	if p.free("a") != maxSendsPerReceiver {
		t.Errorf("%d places when nothing is sent", p.free("a"))
	}
}

func TestUnavailableReceivers(t *testing.T) {
	t.Parallel()
	p, now := newPlaces(), time.Now()
	if receivers, wait := p.unavailable(now, time.Minute); receivers == nil || len(receivers) > 0 || wait != time.Minute {
		t.Errorf("at first: %v for %s", receivers, wait)
	}
	for id := range int64(maxSendsPerReceiver) {
		p.sends[id] = "full"
	}
	p.sends[100] = "slow"
	p.skipped["over"], p.skipped["locked"], p.skipped["late"] = now, now.Add(time.Second), now.Add(time.Hour)
	receivers, wait := p.unavailable(now, time.Minute)
	slices.Sort(receivers)
	if diff := cmp.Diff([]string{"full", "late", "locked"}, receivers); diff != "" || wait != time.Second {
		t.Errorf("for %s (-want +got):\n%s", wait, diff)
	}
	if _, kept := p.skipped["over"]; kept {
		t.Error("a receiver is kept after its time")
	}
}
