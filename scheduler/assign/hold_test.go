package assign

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// perMinute is a rate of ten units a minute of the jobs of a queue or kind, all together or by tenant.
func perMinute(scope, name, key string) jobstore.Limit {
	return jobstore.Limit{Scope: scope, Name: name, Most: 10, Per: time.Minute, Key: key}
}

// rateOf is the group of a value of the key in a rate.
func rateOf(scope, name, key string) group {
	return group{limitID: limitID{scope, name, jobstore.ClassRate}, key: key}
}

// started sets how many units of a rate have started a time before the step.
func (l *loop) started(g group, units int64, ago time.Duration) {
	l.limits.windows[g] = rateWindow{
		jobstore.RateWindow{Starts: []time.Time{l.lastStep.Add(-ago)}, Units: []int64{units}, Now: l.lastStep}, l.lastStep,
	}
}

// weighing returns the job with units and the tenant.
func weighing(j job, units int, tenant string) job {
	j.keys = &jobKeys{values: [maxLimits]string{4: tenant, 5: tenant}, units: units}
	return j
}

// A job of several units that cannot start anyway leaves the units of its rate to the jobs behind it.
func TestJobThatCannotStartHoldsNoUnitsBack(t *testing.T) {
	t.Parallel()
	onGPU := jobOf(1, "k", "q")
	onGPU.capability = "gpu"
	light := jobOf(2, "k", "q")
	rates := map[string]struct {
		limit  jobstore.Limit
		tenant string
	}{
		"of the queue":         {limit: perMinute("queue", "q", "")},
		"of the queue by key":  {limit: perMinute("queue", "q", "args.tenant"), tenant: "t"},
		"of the kind":          {limit: perMinute("job", "k", "")},
		"of the kind by key":   {limit: perMinute("job", "k", "args.tenant"), tenant: "t"},
		"without such a limit": {limit: perMinute("queue", "other", "")},
	}
	for name, rate := range rates {
		for when, units := range map[string]int64{"with a unit in the window": 1, "with an empty window": 0} {
			l := limitedLoop(rate.limit)
			l.started(rateOf(rate.limit.Scope, rate.limit.Name, rate.tenant), units, 0)
			for step := range 3 {
				behind := light
				behind.id += int64(step)
				ids, s := l.placed(weighing(onGPU, 10, rate.tenant), weighing(behind, 1, rate.tenant))
				if !slices.Equal(ids, []int64{behind.id}) || s.unplaced != 1 || s.held || s.stopped {
					t.Errorf("rate %s, %s, step %d: placed %v, scan %+v", name, when, step, ids, s)
				}
			}
		}
	}
}

// The same holds for a job of a kind that no member works, and for one that another limit or rate
// holds back.
func TestJobThatOtherLimitHoldsBackHoldsNoUnitsBack(t *testing.T) {
	t.Parallel()
	queueRate := perMinute("queue", "q", "")
	inQueue := rateOf("queue", "q", "")
	for name, c := range map[string]struct {
		kind   string
		limits []jobstore.Limit
		fill   func(l *loop)
		// unworked is the number of jobs of a kind that no member works.
		unworked int
		waits    []group
	}{
		"a kind that no member works": {kind: "unknown", fill: func(*loop) {}, unworked: 1},
		"the limit of its kind": {
			kind: "rare", limits: []jobstore.Limit{{Scope: "job", Name: "rare", Most: 1}},
			fill:  func(l *loop) { l.limits.running[group{limitID: limitID{"job", "rare", "all"}}] = 1 },
			waits: []group{{limitID: limitID{"job", "rare", "all"}}},
		},
		"a longer wait for the rate of its kind": {
			kind: "rare", limits: []jobstore.Limit{perMinute("job", "rare", "")},
			fill:  func(l *loop) { l.started(rateOf("job", "rare", ""), 10, 0) },
			waits: []group{rateOf("job", "rare", "")},
		},
		"a limit per node": {
			kind: "rare", limits: []jobstore.Limit{{Scope: "job", Name: "rare", Most: 1, Key: "args.device", PerNode: true}},
			fill:  func(l *loop) { l.limits.running[group{limitID{"job", "rare", "node"}, "", "a"}] = 1 },
			waits: []group{{limitID: limitID{"job", "rare", "node"}}},
		},
		"a rate that never has so many units": {
			kind: "rare", limits: []jobstore.Limit{{Scope: "job", Name: "rare", Most: 9, Per: time.Minute}},
			fill:  func(l *loop) { l.started(rateOf("job", "rare", ""), 0, 0) },
			waits: []group{rateOf("job", "rare", "")},
		},
	} {
		l := limitedLoop(append(c.limits, queueRate)...)
		l.started(inQueue, 1, 30*time.Second)
		c.fill(l)
		ids, s := l.placed(weighing(jobOf(1, c.kind, "q"), 10, ""), weighing(jobOf(2, "k", "q"), 1, ""))
		if !slices.Equal(ids, []int64{2}) || s.unplaced != 1 || s.held || s.stopped {
			t.Errorf("%s: placed %v, scan %+v", name, ids, s)
		}
		if s.unworked[c.kind] != c.unworked {
			t.Errorf("%s: the jobs of kinds that no member works are %v", name, s.unworked)
		}
		var waits []group
		for g := range l.limits.waits.current {
			waits = append(waits, g)
		}
		if diff := cmp.Diff(c.waits, waits, cmp.AllowUnexported(group{}, limitID{}), cmpopts.EquateEmpty(), cmp.Comparer(func(a, b group) bool { return a == b })); diff != "" {
			t.Errorf("%s: waits for limits (-want +got):\n%s", name, diff)
		}
	}
}

// holdingLoop returns a loop in which a job of ten units, with the id 100, has been read and waits for
// a rate of queue q by tenant. The member works q and r.
func holdingLoop(t *testing.T) (l *loop, heavy job) {
	t.Helper()
	l = limitedLoop(perMinute("queue", "q", "args.tenant"))
	l.queueScans = map[string]*queueScan{"q": {queue: "q"}, "r": {queue: "r"}}
	heavy = weighing(jobOf(100, "k", "q"), 10, "t")
	l.pass(0)
	if ids, _ := l.placed(heavy); len(ids) > 0 {
		t.Fatalf("%v is placed", ids)
	}
	return l, heavy
}

// pass lets time pass. Then one unit of the tenant has just started.
func (l *loop) pass(d time.Duration) {
	l.lastStep = l.lastStep.Add(d)
	l.started(rateOf("queue", "q", "t"), 1, 0)
}

// light returns a job of one unit of the tenant.
func light(id int64) job { return weighing(jobOf(id, "k", "q"), 1, "t") }

func (l *loop) wantPlaced(t *testing.T, when string, jobs []job, want ...int64) {
	t.Helper()
	ids, _ := l.placed(jobs...)
	if diff := cmp.Diff(want, ids, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s, placed (-want +got):\n%s", when, diff)
	}
}

// A job that waits for several units holds back those behind it until it is read again, however
// much time passes, and even if the limits and nodes are read. It does not hold back those before it.
func TestHeavyJobHoldsUnitsUntilItIsReadAgain(t *testing.T) {
	t.Parallel()
	l, heavy := holdingLoop(t)
	l.wantPlaced(t, "at once", []job{light(101), light(99)}, 99)
	l.limits.set([]jobstore.Limit{perMinute("queue", "q", "args.tenant")}, 1, l.nodes.members)
	l.pass(0)
	l.wantPlaced(t, "after the limits were read", []job{light(102)})
	l.pass(nodesInterval + time.Second)
	l.wantPlaced(t, "after more than ten seconds", []job{light(103)})
	l.wantPlaced(t, "with the job", []job{heavy, light(104)})
	delete(l.limits.offered, 99)
	clear(l.limits.pending)
	l.started(rateOf("queue", "q", "t"), 0, 0)
	l.wantPlaced(t, "with all units", []job{light(105), heavy, light(106)}, 100)
	l.pass(time.Second)
	l.started(rateOf("queue", "q", "t"), 9, 0)
	l.limits.keepOffered(nil, l.lastStep, offerTimeout)
	l.wantPlaced(t, "after it was claimed", []job{light(107)}, 107)
	if len(l.limits.holds) > 0 {
		t.Errorf("the holds at the end are %v", l.limits.holds)
	}
}

// The next job of several units takes over from the first, without being read again.
func TestNextHeavyJobTakesOver(t *testing.T) {
	t.Parallel()
	l, heavy := holdingLoop(t)
	next := weighing(jobOf(200, "k", "q"), 5, "t")
	l.wantPlaced(t, "both", []job{heavy, next})
	l.started(rateOf("queue", "q", "t"), 0, 0)
	l.wantPlaced(t, "with all units", []job{heavy}, 100)
	l.pass(2 * offerTimeout)
	l.started(rateOf("queue", "q", "t"), 6, 0)
	l.limits.keepOffered(nil, l.lastStep, offerTimeout)
	l.wantPlaced(t, "then", []job{light(201), light(199)}, 199)
	urgent := weighing(jobOf(150, "k", "q"), 5, "t")
	l.wantPlaced(t, "with one before it", []job{urgent, light(151)})
	if holds := l.limits.holds[rateOf("queue", "q", "t")]; len(holds) != 2 || holds[0].id != 150 || holds[1].id != 200 {
		t.Errorf("the holds are %v", holds)
	}
	for id := range int64(2 * maxHoldsOfGroup) {
		l.placed(weighing(jobOf(300-id, "k", "q"), 5, "t"))
	}
	if holds := l.limits.holds[rateOf("queue", "q", "t")]; len(holds) != maxHoldsOfGroup || holds[0].id != 150 || !slices.IsSortedFunc(holds, func(a, b hold) int { return a.compare(b.position) }) {
		t.Errorf("with many such jobs, the holds are %v", holds)
	}
}

// While the claim of a job is awaited, its units are pending, and it holds nothing back. If the offer
// is lost, it does again.
func TestLostOfferOfHeavyJobHoldsUnitsAgain(t *testing.T) {
	t.Parallel()
	l, heavy := holdingLoop(t)
	l.started(rateOf("queue", "q", "t"), 0, 0)
	heavy.keys.units = 8
	l.wantPlaced(t, "with all units", []job{heavy, light(101)}, 100, 101)
	l.pass(2 * offerTimeout)
	l.limits.keepOffered(map[int64]int64{100: 7}, l.lastStep, offerTimeout)
	l.wantPlaced(t, "after the offer was lost", []job{light(102)})
}

// A page for the job of a hold is due when the hold is, with the top of its queue, even if the cursor
// is behind the job. Such pages are limited.
func TestDueHoldIsRead(t *testing.T) {
	t.Parallel()
	l, heavy := holdingLoop(t)
	behind := position{priority: 1, id: 5000}
	q := l.queueScans["q"]
	delete(l.queueScans, "r")
	planned := func(when string, wantHeavy, wantTop bool) {
		t.Helper()
		q.cursor, q.topReadAt = behind, l.lastStep
		scans, byPosition := l.plan()
		var readsHeavy, readsTop, readsCursor bool
		for _, s := range scans {
			readsHeavy = readsHeavy || s.due != nil && s.limit == 1 && s.after == position{priority: 1, id: heavy.id - 1}
			readsTop = readsTop || s.extra && s.after == position{}
			readsCursor = readsCursor || s.after == behind && s.due == nil
		}
		if readsHeavy != wantHeavy || readsTop != wantTop || !readsCursor || byPosition != len(scans) {
			t.Errorf("%s, the job is read %t, the top %t, the page of the cursor %t", when, readsHeavy, readsTop, readsCursor)
		}
	}
	planned("before", false, false)
	if next := l.nextHoldScans().Sub(l.lastStep); next != nodesInterval {
		t.Errorf("the job is read again in %s", next)
	}
	l.pass(nodesInterval)
	planned("when it is due", true, true)
	l.pass(time.Millisecond)
	planned("a millisecond later", false, false)
	if next := l.nextHoldScans().Sub(l.holdsReadAt); next != limitedTopInterval {
		t.Errorf("the job is read again %s after it was read", next)
	}
	l.sweepTook = time.Second
	l.pass(limitedTopInterval)
	planned("if sweeps are slow", false, false)
	l.sweepTook = 0
	planned("if they are not", true, true)
	l.pass(limitedTopInterval)
	l.wantPlaced(t, "with the job", []job{heavy, light(101)})
	planned("after it was read", false, false)
	l.limits.set([]jobstore.Limit{{Scope: "queue", Name: "q", Most: 11, Per: time.Minute, Key: "args.tenant"}}, 1, l.nodes.members)
	planned("after a change of the limit", true, true)
	l.limits.set([]jobstore.Limit{perMinute("queue", "q", "args.device")}, 1, l.nodes.members)
	l.pass(nodesInterval)
	planned("after a change of its key", false, false)
	if !l.nextHoldScans().IsZero() {
		t.Error("the job is read again")
	}
}

// A hold ends when its job cannot start any more, or is not there.
func TestHoldEndsWithoutItsJob(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(l *loop, heavy *job)
		gone   bool
	}{
		"not available":           {gone: true},
		"its queue has no worker": {change: func(l *loop, _ *job) { delete(l.queueScans, "q") }, gone: true},
		"paused":                  {change: func(l *loop, _ *job) { l.paused = map[int64]bool{100: true} }},
		"due later":               {change: func(_ *loop, heavy *job) { heavy.dueIn = time.Second }},
		"no member suits it":      {change: func(_ *loop, heavy *job) { heavy.capability = "gpu" }},
		"of another tenant":       {change: func(_ *loop, heavy *job) { *heavy = weighing(*heavy, 10, "other") }},
		"too heavy":               {change: func(_ *loop, heavy *job) { *heavy = weighing(*heavy, 11, "t") }},
	} {
		l, heavy := holdingLoop(t)
		delete(l.queueScans, "r")
		l.pass(nodesInterval)
		l.started(rateOf("queue", "q", "other"), 0, 0)
		if c.change != nil {
			c.change(l, &heavy)
		}
		scans, _ := l.plan()
		read := []job{light(101)}
		read[0].scan = len(scans)
		if len(scans) > 0 && !c.gone {
			read = []job{heavy, read[0]}
		} else if len(scans) > 0 { // the next job of the queue is read in its place
			read = []job{light(102), read[0]}
		}
		scans = append(scans, scanPage{queueScan: &queueScan{queue: "q"}})
		assigned := l.place(scans, l.settleHolds(scans, read))
		var ids []int64
		for _, byQueue := range assigned {
			ids = append(ids, byQueue["q"]...)
		}
		if slices.Contains(ids, 102) || !slices.Contains(ids, 101) || len(l.limits.holds) > 0 {
			t.Errorf("%s: placed %v, and the holds are %v", name, ids, l.limits.holds)
		}
	}
}

// Of two rates without enough units, a job holds back those behind it under the one with the longer
// wait. Once it has the units of that one, it keeps them while it waits for the other.
func TestHeavyJobOfTwoRates(t *testing.T) {
	t.Parallel()
	inQueue, ofKind := rateOf("queue", "q", ""), rateOf("job", "rare", "")
	l := limitedLoop(perMinute("queue", "q", ""), perMinute("job", "rare", ""))
	heavy := weighing(jobOf(1, "rare", "q"), 10, "")
	id := int64(1)
	step := func(when string, queueWait, kindWait time.Duration, wantQueue, wantKind bool) {
		t.Helper()
		clear(l.limits.offered)
		clear(l.limits.pending)
		for g, wait := range map[group]time.Duration{inQueue: queueWait, ofKind: kindWait} {
			l.started(g, min(1, int64(wait)), time.Minute-wait)
		}
		l.placed(heavy)
		id += 2
		inQ, s := l.placed(weighing(jobOf(id, "k", "q"), 1, ""))
		inR, _ := l.placed(weighing(jobOf(id+1, "rare", "r"), 1, ""))
		if (len(inQ) == 0) != wantQueue || (len(inR) == 0) != wantKind || s.held != wantQueue {
			t.Errorf("%s, jobs of the queue are held back: %t, of the kind: %t", when, len(inQ) == 0, len(inR) == 0)
		}
	}
	step("with a longer wait for the kind", 20*time.Second, 40*time.Second, false, true)
	step("with a longer wait for the queue", 50*time.Second, 40*time.Second, true, false)
	step("with a longer wait for the kind again", 30*time.Second, 40*time.Second, false, true)
	step("with the units of the kind", 20*time.Second, 0, true, true)
}

// A job that has its units and no room holds back those of its queue, which have no room either, and
// not those of other queues. If there is room on a member that it does not suit, it holds back none.
func TestHeavyJobWithoutRoom(t *testing.T) {
	t.Parallel()
	ofKind := rateOf("job", "k", "")
	l := limitedLoop(perMinute("job", "k", ""))
	of := func(id int64, queue string, units int) job { return weighing(jobOf(id, "k", queue), units, "") }
	l.started(ofKind, 1, 0)
	l.wantPlaced(t, "without units", []job{of(1, "q", 10), of(2, "q", 1), of(3, "r", 1)})
	m := l.nodes.members[0]
	l.started(ofKind, 0, 0)
	m.free["q"] = 0
	l.wantPlaced(t, "without room", []job{of(1, "q", 10), of(4, "q", 1), of(5, "r", 1)}, 5)
	if next := l.nextHoldScans(); !next.IsZero() {
		t.Errorf("without room, the job is read again at %s", next)
	}
	m.free["q"] = 100
	if next := l.nextHoldScans(); next.IsZero() || next.After(l.lastStep) {
		t.Errorf("with room, the job is read again at %s, now is %s", next, l.lastStep)
	}
	l.wantPlaced(t, "with room, while a job of another queue has a unit", []job{of(6, "q", 1)})
	clear(l.limits.offered)
	clear(l.limits.pending)
	other := *m
	other.incarnation, other.clientID, other.free, other.kinds = "b", "b", map[string]int{"q": 100}, map[string]bool{"rare": true}
	l.nodes.members, m.free["q"] = append(l.nodes.members, &other), 0
	l.wantPlaced(t, "with room elsewhere", []job{of(1, "q", 10), of(7, "r", 1)}, 7)
	if len(l.limits.holds) > 0 {
		t.Errorf("the holds are %v", l.limits.holds)
	}
}

// A job of several units that no member suits does not keep the queue from being held while its rate
// has no unit at all.
func TestFullRateHoldsQueueBehindJobThatCannotStart(t *testing.T) {
	t.Parallel()
	l := limitedLoop(perMinute("queue", "q", ""))
	l.started(rateOf("queue", "q", ""), 10, 57*time.Second)
	ids, s := l.placed(weighing(jobOf(1, "unknown", "q"), 10, ""), weighing(jobOf(2, "k", "q"), 1, ""))
	if len(ids) > 0 || !s.held || s.heldFor > 4*time.Second || len(l.limits.holds) > 0 {
		t.Errorf("placed %v, scan %+v, holds %v", ids, s, l.limits.holds)
	}
}

// In a queue that is read in turns, a job holds back those of other keys that are read later, and
// those of its key behind it.
func TestHeavyJobOfFairQueue(t *testing.T) {
	t.Parallel()
	g := rateOf("job", "k", "")
	l := limitedLoop(perMinute("job", "k", ""))
	l.started(g, 1, 0)
	of := func(id int64, units int, key string) job {
		j := weighing(jobOf(id, "k", "q"), units, "")
		j.inTurn, j.fairKey = true, key
		return j
	}
	l.wantPlaced(t, "at first", []job{of(5, 10, "a"), of(3, 1, "b"), of(6, 1, "a"), of(2, 1, "a")}, 2)
	l.wantPlaced(t, "with one of another key", []job{of(4, 10, "b"), of(7, 1, "c")})
	l.wantPlaced(t, "in the next turns", []job{of(4, 10, "b"), of(5, 10, "a"), of(4, 10, "b")})
	if holds := l.limits.holds[g]; len(holds) != 2 || holds[0].id != 5 || holds[1].id != 4 {
		t.Errorf("the holds are %v", holds)
	}
}

// In a fair queue, the job of a due hold is placed before the turns of other keys, which it holds back
// together with the whole queue.
func TestDueHoldComesBeforeTurns(t *testing.T) {
	t.Parallel()
	g := rateOf("queue", "q", "")
	l := limitedLoop(perMinute("queue", "q", ""))
	q := &queueScan{queue: "q", fair: newFairTurns(jobstore.FairQueue{})}
	l.queueScans = map[string]*queueScan{"q": q}
	heavy := weighing(jobOf(1, "k", "q"), 10, "")
	other := weighing(jobOf(2, "k", "q"), 1, "")
	heavy.inTurn, other.inTurn, heavy.fairKey, other.fairKey = true, true, "b", "a"
	l.started(g, 1, 0)
	l.wantPlaced(t, "without units", []job{heavy})
	l.lastStep = l.lastStep.Add(2 * time.Minute)
	l.started(g, 0, 0)
	scans, byPosition := l.plan()
	if byPosition != 1 || len(scans) != 2 {
		t.Fatalf("%d of %d pages are by position", byPosition, len(scans))
	}
	heavy.scan, other.scan, heavy.inTurn, heavy.fairKey = 0, 1, false, ""
	jobs := l.place(scans, l.settleHolds(scans, []job{other, heavy}))
	if diff := cmp.Diff([]int64{1}, jobs[l.nodes.members[0]]["q"]); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
}
