package assign

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/queuestore"
)

// limitedLoop has one member with much room, and the limits.
func limitedLoop(inForce ...queuestore.Limit) *loop {
	l := &loop{board: newBoard(1, LeastLoaded), limits: newLimits(), flights: map[int64]flight{}, lastTurn: time.Now()}
	m := &member{incarnation: "a", slots: 100, slotsLeft: 100, kinds: map[string]bool{"k": true, "rare": true}, left: map[string]int{"q": 100, "r": 100}}
	l.board.members = []*member{m}
	l.limits.set(inForce)
	return l
}

// placed returns the ids that are assigned, in order, and what the scan came to.
func (l *loop) placed(jobs ...job) ([]int64, scan) {
	scans := []scan{{lane: &lane{queue: "q"}}}
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

func TestPlacesAreCountedAsTheyAreTaken(t *testing.T) {
	t.Parallel()
	l := limitedLoop(queuestore.Limit{Scope: "queue", Name: "q", Most: 3}, queuestore.Limit{Scope: "job", Name: "rare", Most: 2})
	l.limits.taken[group{"queue", "q"}] = 1
	l.limits.taken[group{"job", "rare"}] = 1
	ids, s := l.placed(jobOf(1, "rare", "q"), jobOf(2, "rare", "q"), jobOf(3, "k", "q"), jobOf(4, "k", "q"), jobOf(5, "k", "q"))
	if diff := cmp.Diff([]int64{1, 3}, ids); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	if s.unplaced != 1 || !s.stopped || !s.held || s.last.id != 3 || !l.limits.holding {
		t.Errorf("the scan is %+v", s)
	}
	if ids, s = l.placed(jobOf(7, "rare", "r"), jobOf(8, "k", "r")); !slices.Equal(ids, []int64{8}) || s.held {
		t.Errorf("beside the full queue it placed %v, scan %+v", ids, s)
	}
	free, limited := l.limits.split(jobsByQueue{"q": {1, 3}, "r": {8}})
	if diff := cmp.Diff([]jobsByQueue{{"r": {8}}, {"q": {1, 3}}}, []jobsByQueue{free, limited}); diff != "" {
		t.Errorf("split (-want +got):\n%s", diff)
	}
}

func TestWithoutLimitsNothingIsCounted(t *testing.T) {
	t.Parallel()
	l := limitedLoop()
	jobs := []job{jobOf(1, "rare", "q"), jobOf(2, "k", "q")}
	if ids, s := l.placed(jobs...); len(ids) != 2 || s.held || l.limits.anyOn(jobs) || len(l.limits.offered) != 0 {
		t.Errorf("placed %v, scan %+v, offered %v", ids, s, l.limits.offered)
	}
}
