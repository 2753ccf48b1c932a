package riveradapter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/wire"
)

// Jobs of other queues leave the slots that a queue reserves, and does not use, free. The buffer
// also keeps this if a leader offers more.
func TestReservedSlots(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(5, map[string]int{"bulk": 5, "more": 5, "urgent": 4}, map[string]int{"urgent": 2, "more": 1}, nil)
	wantFree := func(what string, slots int, free, reserved map[string]int) {
		t.Helper()
		credit, _ := b.credit()
		if diff := cmp.Diff(wire.Credit{Slots: slots, Free: free, Reserved: reserved, Term: credit.Term, Seen: credit.Seen}, credit); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	wantFree("idle", 5, map[string]int{"bulk": 2, "more": 3, "urgent": 4}, map[string]int{"urgent": 2, "more": 1})
	b.add(wire.Offer{Term: 1, Seq: 1, Jobs: map[string][]int64{"bulk": {1, 2, 3, 4}}}, noon)
	batch := b.take("bulk", 9)
	if len(batch.free) != 2 {
		t.Fatalf("claims %d jobs of the other queue, want 2", len(batch.free))
	}
	b.claimed("bulk", batch.free, rowsOf(batch.free))
	b.add(wire.Offer{Term: 1, Seq: 2, Jobs: map[string][]int64{"urgent": {11, 12, 13}}}, noon)
	batch = b.take("urgent", 9)
	if len(batch.free) != 2 {
		t.Fatalf("claims %d jobs of the queue, want the 2 that it reserves", len(batch.free))
	}
	b.claimed("urgent", batch.free, rowsOf(batch.free))
	b.resize(5, map[string]int{"bulk": 5, "more": 5, "urgent": 4}, nil)
	if batch = b.take("urgent", 9); len(batch.free) != 1 {
		t.Errorf("without reserved slots, claims %d more jobs, want 1", len(batch.free))
	}
}
