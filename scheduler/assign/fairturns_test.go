package assign

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A page of a fair queue leaves out the queue's own jobs with pending offers. It knows nothing of
// those of other queues, of which there may be ten thousand.
func TestFairPageLeavesOutPendingOffersOfItsQueue(t *testing.T) {
	t.Parallel()
	l := limitedLoop()
	fair := &fairTurns{}
	l.queueScans = map[string]*queueScan{"q": {queue: "q"}, "r": {queue: "r", fair: fair}}
	const claimTimeout = 500 * time.Millisecond
	skipped := func() []int64 {
		return fair.jobstoreScan(10, claimTimeout, l.lastStep).Skip
	}
	check := func(when string, want ...int64) {
		t.Helper()
		if diff := cmp.Diff(want, skipped(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s, a page leaves out (-want +got):\n%s", when, diff)
		}
	}
	l.offerNow(jobOf(1, "k", "q"), jobOf(2, "k", "r"))
	check("after the first offer", 2)
	l.lastStep = l.lastStep.Add(claimTimeout / 2)
	l.offerNow(jobOf(3, "k", "q"), jobOf(4, "k", "r"))
	check("after the second", 2, 4)
	l.lastStep = l.lastStep.Add(claimTimeout / 2)
	check("when the first is too old", 4)
	l.lastStep = l.lastStep.Add(claimTimeout)
	check("at the end")
	if len(fair.offered) > 0 || len(l.pendingOffers) != 4 {
		t.Errorf("at the end it knows %d offers, the loop %d", len(fair.offered), len(l.pendingOffers))
	}
}

// offerNow assigns the jobs to the only member.
func (l *loop) offerNow(jobs ...job) {
	for _, j := range jobs {
		l.give(l.nodes.members[0], j, l.lastStep, map[*member]jobsByQueue{})
	}
}
