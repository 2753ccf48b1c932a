package assign

import (
	"iter"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// maxHolds bounds the groups with holds, and maxHoldsOfGroup the holds of a group. Further jobs
	// hold back none.
	maxHolds, maxHoldsOfGroup = 10_000, 20
	// maxHoldReads is the maximum number of jobs that a sweep reads because of their holds.
	maxHoldReads = 100
)

// hold is a job that waits for several units of a rate. The jobs of its group behind it wait as
// well, so that it gets them. A hold does not end with time, because pages behind the cursor do not
// contain its job. It ends when the job is claimed, when a page finds that the job could not start with
// the units either, and when the job is not found any more.
type hold struct {
	position

	queue string
	units int
	// until is when the job is read again.
	until time.Time
	// inTurn reports that the queue is read in turns, and fairKey is the job's key then.
	inTurn  bool
	fairKey string
	// noRoom reports that the job has its units, and waits for room in its queue. It holds back only
	// jobs of this queue.
	noRoom bool
}

// isBefore reports whether the job is offered before another. A queue that is read in turns has an
// order only for each key, so there the job that is read first is before those of other keys.
func (h hold) isBefore(j job) bool {
	if (h.inTurn || j.inTurn) && (h.inTurn != j.inTurn || h.queue != j.queue || h.fairKey != j.fairKey) {
		return true
	}
	return h.compare(j.position) < 0
}

// holdOn returns the hold that holds a job of a group back. A job that is offered holds back none,
// because its units are counted as pending.
func (l *limits) holdOn(g group, j job) (hold, bool) {
	for _, h := range l.holds[g] {
		switch {
		case h.id == j.id:
			return hold{}, false
		case !l.isOffered(h.id) && (!h.noRoom || h.queue == j.queue) && h.isBefore(j):
			return h, true
		}
	}
	return hold{}, false
}

func (l *limits) isOffered(id int64) bool {
	_, offered := l.offered[id]
	return offered
}

// hold makes a job that needs several units hold back those behind it in the group that refuses it.
// Of its other rates, it goes on holding those that have its units.
func (l *limits) hold(j job, groups []group, r refusal, now time.Time) {
	for _, g := range groups {
		held := slices.ContainsFunc(l.holds[g], func(h hold) bool { return h.id == j.id })
		if g == r.group || held && !l.lacksUnits(g, j, now) {
			l.setHold(g, j, now.Add(r.wait))
		} else if held {
			l.endHolds(j.id, []group{g})
		}
	}
}

// setHold adds the hold of a job to those of a group, in their order, or renews it.
func (l *limits) setHold(g group, j job, until time.Time) {
	if len(l.holds[g]) == 0 && len(l.holds) >= maxHolds {
		return
	}
	renewed := hold{position: j.position, queue: j.queue, units: j.units(), until: until, inTurn: j.inTurn, fairKey: j.fairKey}
	holds := l.holds[g]
	i := slices.IndexFunc(holds, func(h hold) bool { return h.id == j.id || !h.isBefore(j) })
	switch {
	case i < 0:
		holds = append(holds, renewed)
	case holds[i].id == j.id:
		holds[i] = renewed
	default:
		holds = slices.DeleteFunc(holds, func(h hold) bool { return h.id == j.id })
		holds = slices.Insert(holds, i, renewed)
	}
	l.holds[g] = holds[:min(len(holds), maxHoldsOfGroup)]
}

// lacksUnits reports whether a rate has no units for a job now.
func (l *limits) lacksUnits(g group, j job, now time.Time) bool {
	_, full := l.rateFull(g, j, j.units(), now)
	return full
}

// holdWithoutRoom notes that a job that has a place in all of its groups waits for room.
func (l *limits) holdWithoutRoom(id int64, groups []group, now time.Time) {
	for _, g := range groups {
		for i, h := range l.holds[g] {
			if h.id == id {
				l.holds[g][i].noRoom, l.holds[g][i].until = true, now
			}
		}
	}
}

// endHolds ends the holds of a job in the groups.
func (l *limits) endHolds(id int64, groups []group) {
	for _, g := range groups {
		if len(l.holds[g]) == 0 {
			continue
		}
		l.holds[g] = slices.DeleteFunc(l.holds[g], func(h hold) bool { return h.id == id })
		if len(l.holds[g]) == 0 {
			delete(l.holds, g)
		}
	}
}

// keepHolds ends the holds in groups that the limits do not have any more. After another change of a
// limit, its jobs are read again at once.
func (l *limits) keepHolds(before map[limitID]jobstore.Limit) {
	for g, holds := range l.holds {
		limit, ok := l.inForce[g.limitID]
		switch {
		case !ok || limit.Key != before[g.limitID].Key:
			delete(l.holds, g)
		case limit != before[g.limitID]:
			for i := range holds {
				holds[i].until = holds[i].until.Add(-nodesInterval) // the longest time until then
			}
		}
	}
}

// activeHolds returns the holds that hold jobs back: mostly the first of each group.
func (l *limits) activeHolds() iter.Seq2[group, hold] {
	return func(yield func(group, hold) bool) {
		for g, holds := range l.holds {
			for _, h := range holds {
				if l.isOffered(h.id) {
					continue
				}
				if !yield(g, h) {
					return
				}
				if !h.noRoom {
					break
				}
			}
		}
	}
}

// dueHold is a job to read because of its holds in the groups.
type dueHold struct {
	hold

	groups []group
}

// dueHolds returns the jobs to read now because of their holds, at most maxHoldReads.
func (l *limits) dueHolds(now time.Time) []*dueHold {
	var due []*dueHold
	known := map[int64]*dueHold{}
	for g, h := range l.activeHolds() {
		if h.until.After(now) {
			continue
		}
		if known[h.id] == nil {
			if len(due) == maxHoldReads {
				continue
			}
			known[h.id] = &dueHold{hold: h}
			due = append(due, known[h.id])
		}
		known[h.id].groups = append(known[h.id].groups, g)
	}
	return due
}

// holdScans returns a page for each job whose hold is due, and makes the top of its queue due: what
// comes next there may be held back by the next such job. It reads them as often as it may read the
// top of a queue where limits hold jobs back.
func (l *loop) holdScans() (scans []scanPage) {
	if l.lastStep.Before(l.holdsReadAt.Add(l.limitedTopEvery())) {
		return nil
	}
	for _, due := range l.limits.dueHolds(l.lastStep) {
		q := l.queueScans[due.queue]
		if q == nil { // no node works it
			l.limits.endHolds(due.id, due.groups)
			continue
		}
		q.topReadAt, l.holdsReadAt = time.Time{}, l.lastStep
		after := due.position
		after.id--
		scans = append(scans, scanPage{queueScan: q, after: after, limit: 1, due: due})
	}
	return scans
}

// nextHoldScans returns when holdScans next has pages, or zero. No page is needed of a job that waits
// for room before there is some.
func (l *loop) nextHoldScans() (next time.Time) {
	for _, h := range l.limits.activeHolds() {
		if !h.noRoom || l.nodes.room(h.queue) > 0 {
			next = earliest(next, h.until)
		}
	}
	if from := l.holdsReadAt.Add(l.limitedTopEvery()); !next.IsZero() && next.Before(from) {
		return from
	}
	return next
}

// settleHolds leaves only the jobs of the holds in their pages, and ends the holds of which the job
// was not found: it is not available any more, or its queue is paused. The jobs of queues that are
// read in turns come first, because they may hold back all turns.
func (l *loop) settleHolds(scans []scanPage, jobs []job) []job {
	if !slices.ContainsFunc(scans, func(s scanPage) bool { return s.due != nil }) {
		return jobs
	}
	found := map[int64]bool{}
	var first []job
	jobs = slices.DeleteFunc(jobs, func(j job) bool {
		due := scans[j.scan].due
		switch {
		case due == nil:
			return false
		case j.id != due.id:
			return true
		}
		found[j.id] = true
		if due.inTurn {
			j.inTurn, j.fairKey = true, due.fairKey
			first = append(first, j)
		}
		return due.inTurn
	})
	for _, s := range scans {
		if s.due != nil && !found[s.due.id] {
			l.limits.endHolds(s.due.id, s.due.groups)
		}
	}
	return slices.Insert(jobs, 0, first...)
}

// canStart reports whether one of the members would have a place for a job if it had room. held is a
// limit per node that holds the job back on a member that suits it, zero if there is none.
func (l *limits) canStart(j job, members []*member) (can bool, held group) {
	for _, m := range members {
		if _, works := m.queues[j.queue]; !works || !m.suits(j) {
			continue
		}
		r, full := l.fullOn(m, j)
		if !full {
			return true, group{}
		}
		held = r.group
	}
	return false, held
}
