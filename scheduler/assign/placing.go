package assign

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// place assigns the jobs in their order.
func (l *loop) place(scans []scanPage, jobs []job) map[*member]jobsByQueue {
	assigned := map[*member]jobsByQueue{}
	exhausted := map[string]bool{} // queues without remaining credit
	for _, j := range jobs {
		if s := &scans[j.scan]; s.byKey != nil {
			s.byKey[j.fairKey] = append(s.byKey[j.fairKey], j)
		}
	}
	for _, j := range jobs {
		s := &scans[j.scan]
		if exhausted[j.queue] {
			s.stopped = true
			continue
		}
		if !l.placeNext(s, j, assigned) {
			exhausted[j.queue], s.stopped = true, true
			continue
		}
		s.last = j.position
	}
	return assigned
}

// placeNext places a job, or the next one of its key in a page that is read in turns. It returns
// false if the job's queue has no credit or place left.
func (l *loop) placeNext(s *scanPage, j job, assigned map[*member]jobsByQueue) bool {
	if s.byKey != nil {
		return l.placeTurn(s, j.fairKey, assigned)
	}
	return l.placeOne(s, j, assigned)
}

// placeOne returns false if the job's queue has no credit or place left.
func (l *loop) placeOne(s *scanPage, j job, assigned map[*member]jobsByQueue) bool {
	if s.due != nil && (j.dueIn > 0 || l.paused[j.id]) {
		l.limits.endHolds(j.id, s.due.groups)
	}
	if j.dueIn > 0 {
		l.dueAt = earliest(l.dueAt, time.Now().Add(j.dueIn))
		return true
	}
	if !l.needsPlace(j) {
		return true
	}
	if l.paused[j.id] {
		s.paused = true
		return true
	}
	before, groups := l.pendingOffers[j.id], l.limits.groupsOf(j)
	if s.due != nil { // the values of its keys may have changed
		l.limits.endHolds(j.id, slices.DeleteFunc(s.due.groups, func(g group) bool { return slices.Contains(groups, g) }))
	}
	if r, full := l.limits.full(j, groups, l.lastStep); full {
		return l.refuse(s, j, groups, r)
	}
	m, credit, held := pick(j, l.nodes.members, l.nodes.strategy, before.incarnation, l.limits.fullOn)
	switch {
	case !credit:
		l.limits.holdWithoutRoom(j.id, groups, l.lastStep)
		return false
	case m == nil:
		l.limits.endHolds(j.id, groups)
		l.skip(s, j, held)
		return true
	}
	l.limits.reserve(j, append(groups, l.limits.groupsOn(j, m.clientID)...), l.lastStep)
	l.give(m, j, l.lastStep, assigned)
	return true
}

// refuse counts a job that a group has no place for. It returns false if no job of its queue has one.
// A job of several units holds back those behind it if only its rates refuse it.
func (l *loop) refuse(s *scanPage, j job, groups []group, r refusal) bool {
	l.limits.refused = true
	switch {
	case j.units() == 1:
	case r.class != jobstore.ClassRate || !r.ever:
		l.limits.endHolds(j.id, groups)
	default:
		can, held := l.limits.canStart(j, l.nodes.members)
		if can {
			l.limits.hold(j, groups, r, l.lastStep)
			break
		}
		l.limits.endHolds(j.id, groups)
		one, full := l.limits.rateFull(r.group, j, 1, l.lastStep)
		if !full || !l.limits.holdsQueue(r.group) {
			l.skip(s, j, held)
			return true
		}
		r = one
	}
	l.limits.note(r, l.lastStep.Add(j.dueIn), l.lastStep)
	if r.ever && l.limits.holdsQueue(r.group) {
		s.held, s.heldFor = true, r.wait
		return false
	}
	s.unplaced, s.limited = s.unplaced+1, true // later jobs may have places
	if r.ever {
		s.fullGroup = r.group
	}
	return true
}

// skip counts a job that no member takes. held is a limit per node that holds it back, or zero.
func (l *loop) skip(s *scanPage, j job, held group) {
	s.unplaced++
	switch {
	case held != group{}:
		l.limits.refused = true
		held.client = ""
		l.limits.waits.note(held, l.lastStep.Add(j.dueIn))
		s.limited, s.fullGroup = true, held
	case !l.nodes.works(j):
		s.unworked = s.unworked.add(j.kind, 1)
	}
}

// give assigns a job to a member.
func (l *loop) give(m *member, j job, now time.Time, assigned map[*member]jobsByQueue) {
	l.nodes.assign(m, j)
	l.pendingOffers[j.id] = pendingOffer{at: now, incarnation: m.incarnation}
	if q := l.queueScans[j.queue]; q != nil && q.fair != nil {
		q.fair.offered = append(q.fair.offered, offeredTurn{j.id, now})
	}
	if assigned[m] == nil {
		assigned[m] = jobsByQueue{}
	}
	assigned[m][j.queue] = append(assigned[m][j.queue], j.id)
}
