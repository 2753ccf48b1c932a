package assign

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// A page of a fair queue leaves out the queue's own jobs with pending offers. It knows nothing of
// those of other queues, of which there may be ten thousand.
func TestFairPageLeavesOutPendingOffersOfItsQueue(t *testing.T) {
	t.Parallel()
	l := limitedLoop()
	fair := newFairTurns(jobstore.FairQueue{})
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

// inTurn returns a job of a fair queue.
func inTurn(id int64) job { return job{position: position{priority: 1, id: id}, inTurn: true} }

// While others can always be placed, passed jobs are read again after a time, and not before.
func TestFairPassEndsInTime(t *testing.T) {
	t.Parallel()
	q, now := &queueScan{queue: "q", fair: newFairTurns(jobstore.FairQueue{})}, time.Now()
	page := func(after time.Duration) (passed bool) {
		now = now.Add(after)
		s := q.turns(now, 10)[0]
		s.stopped = true
		q.advanceTurns(s)
		return q.fair.hasPassed(inTurn(5))
	}
	page(0)
	page(2 * maxPass)
	q.fair.pass(inTurn(5), now.Add(unplacedRetry))
	if !q.fair.hasPassed(inTurn(4)) || q.fair.hasPassed(inTurn(6)) {
		t.Error("the position is wrong")
	}
	for range 3 {
		if !page(maxPass / 4) {
			t.Fatal("the pass has ended early")
		}
	}
	if page(maxPass/2) && page(0) {
		t.Error("the pass has not ended")
	}
	q.fair.pass(inTurn(5), now.Add(unplacedRetry))
	if !page(maxPass / 2) {
		t.Error("the next pass has ended early")
	}
	l := limitedLoop()
	l.queueScans = map[string]*queueScan{"q": q}
	l.works(`{"queue": "q", "from": "2026-11-20T12:00:00Z"}`)
	if !page(time.Second) {
		t.Error("a release has ended the pass")
	}
	l.works(`{"queue": "q", "from": "1970-01-01T00:00:00Z"}`)
	if page(time.Second) && page(0) {
		t.Error("a resume has not ended the pass")
	}
}

// offerNow assigns the jobs to the only member.
func (l *loop) offerNow(jobs ...job) {
	for _, j := range jobs {
		l.give(l.nodes.members[0], j, l.lastStep, map[*member]jobsByQueue{})
	}
}

// A pass ends after a round in which no key had a job to place, or to leave out.
func TestFairPassEndsAfterARound(t *testing.T) {
	t.Parallel()
	f := newFairTurns(jobstore.FairQueue{})
	check := func(when, key string, leftOut, want bool) {
		t.Helper()
		if more := f.endTurn(key, leftOut); more != want {
			t.Errorf("%s, after the turn of %q, keys may follow: %t, want %t", when, key, more, want)
		}
	}
	for _, key := range []string{"a", "b", ""} { // jobs without a key come last
		check("at the first key", key, false, key != "")
	}
	f.serve(job{fairKey: "b"})
	check("from the key that was served", "c", false, true)
	check("from the last key to the first", "", false, true)
	check("before the key that was served", "a", false, true)
	check("back", "b", false, false)
	check("after that", "c", false, false)

	check("jobs were left out", "c", true, true)
	check("in the next round", "a", false, true)
	check("past a key without further jobs", "d", false, false)

	f.beginPage(time.Time{})
	check("in the next pass", "a", false, true)
	check("if it is the only key", "a", false, false)
}

// The jobs of a kind that no member works are counted once in each pass, although most pages leave
// them out.
func TestFairPassCountsUnworkedJobs(t *testing.T) {
	t.Parallel()
	q, now := &queueScan{queue: "q", fair: newFairTurns(jobstore.FairQueue{})}, time.Now()
	page := func(when string, want int, found ...int64) {
		t.Helper()
		s := q.turns(now, 10)[0]
		for _, id := range found {
			s.progress = q.fair.pass(inTurn(id), now.Add(unplacedRetry)) || s.progress
			s.unworked, s.more = s.unworked.add("k", 1), true
		}
		q.advanceTurns(s)
		if got := q.unworkedNow()["k"]; got != want {
			t.Errorf("%s: %d jobs, want %d", when, got, want)
		}
		now = now.Add(fruitlessInterval)
	}
	page("the first page", 2, 1, 2)
	page("the second", 3, 3)
	page("the end of the pass", 3)
	page("after the pass", 3)
	now = now.Add(unplacedRetry)
	page("the next pass", 3, 1, 2)
	now = now.Add(unplacedRetry)
	page("a page of all jobs", 3, 1, 2, 3)
	page("the end of the next pass", 3, 3)
	page("after it", 3)
	now = now.Add(unplacedRetry)
	page("a pass without such jobs", 3)
	page("after that", 0)
}
