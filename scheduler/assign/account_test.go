package assign

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// limitedLoop returns a loop with the given limits and one member with much room.
func limitedLoop(inForce ...jobstore.Limit) *loop {
	l := &loop{nodes: newNodeTable(1, LeastLoaded), limits: newLimits(), pendingOffers: map[int64]pendingOffer{}, lastStep: time.Now()}
	m := &member{incarnation: "a", clientID: "a", slots: 100, freeSlots: 100, kinds: map[string]bool{"k": true, "rare": true}, free: map[string]int{"q": 100, "r": 100}, queues: map[string]int{"q": 100, "r": 100}}
	l.nodes.members = []*member{m}
	l.limits.set(inForce, 1, l.nodes.members)
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
	l.limits.running[group{limitID: limitID{"queue", "q", "all"}}] = 1
	l.limits.running[group{limitID: limitID{"job", "rare", "all"}}] = 1
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

// The place of a counted job goes to another one only when the offer cannot be claimed any more: the
// job's row has changed, or the offers were recalled.
func TestPlacesOfLostOffersStayTaken(t *testing.T) {
	t.Parallel()
	of := func(id int64) job {
		j := jobOf(id, "k", "q")
		j.keys = &jobKeys{values: [maxLimits]string{2: "acme"}, units: 1, row: 7, locks: [maxLimits]int64{2: 9}}
		return j
	}
	for name, test := range map[string]struct {
		earlier bool // nodes count
		rate    bool
		frees   func(l *limits)
		want    []int64
		recall  bool
	}{
		"the offer is lost": {want: nil, recall: true},
		"recalled": {want: []int64{2}, frees: func(l *limits) {
			if l.set(slices.Collect(maps.Values(l.inForce)), 2, nil); !l.recalled[1] {
				t.Errorf("recalled %v", l.recalled)
			}
		}},
		"read again in the same version": {want: nil, frees: func(l *limits) {
			if l.set(slices.Collect(maps.Values(l.inForce)), 1, nil); len(l.recalled) > 0 {
				t.Errorf("recalled %v", l.recalled)
			}
		}},
		"another row":     {want: []int64{2}, frees: func(l *limits) { l.keepOffered(map[int64]int64{1: 8}, time.Now(), time.Hour) }},
		"claimed":         {want: []int64{2}, frees: func(l *limits) { l.keepOffered(nil, time.Now(), time.Hour) }},
		"nodes count":     {earlier: true, want: []int64{2}},
		"a rate as well":  {rate: true, want: nil, recall: true},
		"still in flight": {want: nil, frees: func(l *limits) { l.keepOffered(map[int64]int64{1: 7}, time.Now(), time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inForce := []jobstore.Limit{{Scope: "queue", Name: "q", Most: 1, Key: "args.tenant"}}
			if test.rate {
				inForce = append(inForce, jobstore.Limit{Scope: "queue", Name: "q", Most: 100, Per: time.Minute})
			}
			l := limitedLoop(inForce...)
			l.limits.counting = !test.earlier
			l.started(group{limitID: limitID{"queue", "q", "rate"}}, 0, 0)
			if ids, _ := l.placed(of(1), of(2)); !slices.Equal(ids, []int64{1}) {
				t.Fatalf("placed %v, want job 1", ids)
			}
			var want []int64
			if !test.earlier && !test.rate {
				want = []int64{9}
			}
			if locks := l.limits.offered[1].locks; !slices.Equal(locks, want) {
				t.Errorf("offered with the locks %v, want %v", locks, want)
			}
			if test.frees != nil {
				test.frees(l.limits)
			} else {
				l.lastStep = l.lastStep.Add(2 * offerTimeout)
				l.started(group{limitID: limitID{"queue", "q", "rate"}}, 0, 0)
				l.limits.keepOffered(map[int64]int64{1: 7}, l.lastStep, offerTimeout)
			}
			if l.limits.recallDue != test.recall {
				t.Errorf("a recall is due: %t", l.limits.recallDue)
			}
			if ids, _ := l.placed(of(2)); !slices.Equal(ids, test.want) {
				t.Errorf("then placed %v, want %v", ids, test.want)
			}
		})
	}
}

// The leader counts for the nodes as long as all of them can be relied on: a claim by a node of an
// earlier version may come late.
func TestEarlierNodesCountThemselves(t *testing.T) {
	t.Parallel()
	now := time.Now()
	table := newNodeTable(1, LeastLoaded)
	table.members = []*member{{reportedAt: now, report: wire.Credit{ReadsCounted: true}}, {}}
	if !table.counting(now) {
		t.Error("a node without a report keeps the leader from counting")
	}
	table.members[1].reportedAt = now
	if table.counting(now) {
		t.Error("the leader counts for a node of an earlier version")
	}
	table.members = table.members[:1]
	if table.counting(now.Add(earlierClaims)) || !table.counting(now.Add(earlierClaims+time.Second)) {
		t.Error("the leader does not wait for late claims of a node that has left")
	}
}

// A key without a place leaves the places of other keys to the jobs behind it.
func TestFullKeyHoldsBackOnlyItsJobs(t *testing.T) {
	t.Parallel()
	l := limitedLoop(jobstore.Limit{Scope: "queue", Name: "q", Most: 2, Key: "args.tenant"}, jobstore.Limit{Scope: "job", Name: "k", Most: 1, Key: "args.tenant"})
	of := func(id int64, tenant string) job {
		j := jobOf(id, "k", "q")
		j.keys = &jobKeys{values: [maxLimits]string{2: tenant, 3: tenant}, units: 1}
		return j
	}
	l.limits.running[group{limitID: limitID{"queue", "q", "key"}, key: "full"}] = 2
	ids, s := l.placed(of(1, "full"), of(2, "full"), of(3, "one"), of(4, "one"), of(5, ""), of(6, "full"))
	if diff := cmp.Diff([]int64{3, 5}, ids); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	if s.unplaced != 4 || s.stopped || s.held || !s.limited || s.last.id != 6 {
		t.Errorf("the scan is %+v", s)
	}
}

// A rate allows as many units as are left of its window. A job that needs more than are left
// holds back those behind it, until a time that is known. One that needs more than there ever are
// holds back none.
func TestRateHoldsBackJobs(t *testing.T) {
	t.Parallel()
	l := limitedLoop(jobstore.Limit{Scope: "queue", Name: "q", Most: 10, Per: time.Minute, Key: "args.tenant"}, jobstore.Limit{Scope: "weight", Name: "k", Most: 3})
	of := func(id int64, tenant string, units int) job {
		j := jobOf(id, "k", "q")
		j.keys = &jobKeys{values: [maxLimits]string{4: tenant}, units: units}
		return j
	}
	now := time.Now()
	l.lastStep = now
	for tenant, started := range map[string]int64{"a": 6, "b": 10, "c": 0, "d": 0} {
		l.limits.windows[group{limitID: limitID{"queue", "q", "rate"}, key: tenant}] = rateWindow{
			jobstore.RateWindow{Starts: []time.Time{now.Add(-50 * time.Second)}, Units: []int64{started}, Now: now}, now,
		}
	}
	ids, s := l.placed(of(1, "a", 3), of(2, "a", 2), of(3, "a", 1), of(4, "b", 1), of(5, "c", 11), of(6, "c", 10), of(7, "d", 1))
	if diff := cmp.Diff([]int64{1, 6, 7}, ids); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	if s.unplaced != 4 || s.stopped || s.held || !s.limited || l.limits.blocking {
		t.Errorf("the scan is %+v", s)
	}
	if wait := l.limits.freeAt.Sub(now); wait <= 0 || wait > nodesInterval {
		t.Errorf("the rate is checked again in %s", wait)
	}
}

// A full rate of a whole queue holds the queue until it has units again.
func TestFullRateHoldsQueue(t *testing.T) {
	t.Parallel()
	l := limitedLoop(jobstore.Limit{Scope: "queue", Name: "q", Most: 2, Per: time.Second})
	now := time.Now()
	l.lastStep = now
	l.limits.windows[group{limitID: limitID{"queue", "q", "rate"}, key: ""}] = rateWindow{
		jobstore.RateWindow{Starts: []time.Time{now.Add(-700 * time.Millisecond), now}, Units: []int64{1, 1}, Now: now}, now,
	}
	ids, s := l.placed(jobOf(1, "k", "q"), jobOf(2, "k", "q"))
	if len(ids) != 0 || !s.held || s.heldFor < 290*time.Millisecond || s.heldFor > 310*time.Millisecond {
		t.Errorf("placed %v, held %v for %s, want about 300 ms", ids, s.held, s.heldFor)
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

// A limit per node leaves the places on other nodes, and other values of the key.
func TestLimitPerNodeHoldsOnEachNode(t *testing.T) {
	t.Parallel()
	l := limitedLoop()
	for _, id := range []string{"b", "c"} {
		m := *l.nodes.members[0]
		m.incarnation, m.clientID, m.free = id, id, map[string]int{"q": 100, "r": 100}
		l.nodes.members = append(l.nodes.members, &m)
	}
	l.nodes.members = l.nodes.members[1:]
	l.limits.set([]jobstore.Limit{{Scope: "queue", Name: "q", Most: 2, Key: "args.device", PerNode: true}}, 1, l.nodes.members)
	of := func(id int64, device string) job {
		j := jobOf(id, "k", "q")
		j.keys = &jobKeys{values: [maxLimits]string{6: device}, units: 1}
		return j
	}
	onB := group{limitID{"queue", "q", "node"}, "x", "b"}
	l.limits.running[onB] = 1
	if diff := cmp.Diff([]jobstore.Places{onB.places(), {Scope: "queue", Name: "q", Class: "node", Key: "x", Client: "c"}},
		l.limits.missing([]job{of(1, "x")}, func(job, group) bool { return true })); diff != "" {
		t.Errorf("asks for (-want +got):\n%s", diff)
	}
	ids, s := l.placed(of(1, "x"), of(2, "x"), of(3, "x"), of(4, "x"), of(5, "y"))
	if diff := cmp.Diff([]int64{1, 2, 3, 5}, ids); diff != "" {
		t.Errorf("assigned (-want +got):\n%s", diff)
	}
	if s.stopped || !s.limited || s.unplaced != 1 || l.limits.used(onB) != 2 {
		t.Errorf("stopped %v, limited %v, %d without a place, %d places of b", s.stopped, s.limited, s.unplaced, l.limits.used(onB))
	}
	if groups := l.limits.waits.current; len(groups) != 1 || groups[group{limitID: onB.limitID, key: "x"}].IsZero() {
		t.Errorf("waits %v", groups)
	}
}
