package assign

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// limitedLoop returns a loop with the given limits and one member with much room.
func limitedLoop(inForce ...jobstore.Limit) *loop {
	l := &loop{nodes: newNodeTable(1, LeastLoaded), limits: newLimits(), pendingOffers: map[int64]pendingOffer{}, lastStep: time.Now()}
	m := &member{incarnation: "a", slots: 100, freeSlots: 100, kinds: map[string]bool{"k": true, "rare": true}, free: map[string]int{"q": 100, "r": 100}}
	l.nodes.members = []*member{m}
	l.limits.set(inForce)
	return l
}

// placed returns the sorted ids of the assigned jobs, and the page after placement.
func (l *loop) placed(jobs ...job) ([]int64, scanPage) {
	scans := []scanPage{{queueScan: &queueScan{queue: "q"}}}
	var ids []int64
	for _, byQueue := range l.place(scans, jobs) {
		for _, some := range byQueue {
			ids = append(ids, some...)
		}
	}
	slices.Sort(ids)
	return ids, scans[0]
}

func jobOf(id int64, kind, queue string) job {
	return job{position: position{priority: 1, id: id}, kind: kind, queue: queue}
}

func TestLimitPlacesAreCountedAsTaken(t *testing.T) {
	t.Parallel()
	l := limitedLoop(jobstore.Limit{Scope: "queue", Name: "q", Most: 3}, jobstore.Limit{Scope: "job", Name: "rare", Most: 2})
	l.limits.used[group{"queue", "q"}] = 1
	l.limits.used[group{"job", "rare"}] = 1
	ids, s := l.placed(jobOf(1, "rare", "q"), jobOf(2, "rare", "q"), jobOf(3, "k", "q"), jobOf(4, "k", "q"), jobOf(5, "k", "q"))
	if diff := cmp.Diff([]int64{1, 3}, ids); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	if s.unplaced != 1 || !s.stopped || !s.held || s.last.id != 3 || !l.limits.blocking {
		t.Errorf("the scan is %+v", s)
	}
	if ids, s = l.placed(jobOf(7, "rare", "r"), jobOf(8, "k", "r")); !slices.Equal(ids, []int64{8}) || s.held {
		t.Errorf("with a full queue it placed %v, scan %+v", ids, s)
	}
	free, limited := l.limits.split(jobsByQueue{"q": {1, 3}, "r": {8}})
	if diff := cmp.Diff([]jobsByQueue{{"r": {8}}, {"q": {1, 3}}}, []jobsByQueue{free, limited}); diff != "" {
		t.Errorf("split (-want +got):\n%s", diff)
	}
}

func TestNothingIsCountedWithoutLimits(t *testing.T) {
	t.Parallel()
	l := limitedLoop()
	jobs := []job{jobOf(1, "rare", "q"), jobOf(2, "k", "q")}
	if ids, s := l.placed(jobs...); len(ids) != 2 || s.held || l.limits.anyLimited(jobs) || len(l.limits.offered) != 0 {
		t.Errorf("placed %v, scan %+v, offered %v", ids, s, l.limits.offered)
	}
}
