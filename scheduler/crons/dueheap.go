package crons

import (
	"container/heap"
	"time"
)

// dueHeap orders crons by the time of their next check. Crons that are still on time come
// first, the earliest of them first, so an overloaded leader serves all crons in turn.
// Crons with a backlog follow, the latest of them first.
type dueHeap struct {
	punctual entryHeap // ordered by next check, the earliest on top
	late     entryHeap // the latest on top
}

// entry is a cron and the time of its next check.
type entry struct {
	name string
	at   time.Time
}

// entryHeap implements heap.Interface.
type entryHeap struct {
	list        []entry
	newestFirst bool // whether the latest or the earliest is on top
}

func newDueHeap() *dueHeap { return &dueHeap{late: entryHeap{newestFirst: true}} }

// next returns the time of the next check. It returns false if the heap is empty.
func (h *dueHeap) next() (time.Time, bool) {
	switch {
	case len(h.late.list) > 0:
		return h.late.list[0].at, true
	case len(h.punctual.list) > 0:
		return h.punctual.list[0].at, true
	default:
		return time.Time{}, false
	}
}

// dueTogether returns how many crons are due within span of the next check, at most limit
// of them, and when the last of them is due. It returns 0 while other crons are late.
func (h *dueHeap) dueTogether(span time.Duration, limit int) (at time.Time, n int) {
	if len(h.late.list) > 0 || len(h.punctual.list) == 0 {
		return time.Time{}, 0
	}
	return h.punctual.countDue(0, h.punctual.list[0].at.Add(span), limit)
}

// pop removes at most limit crons that are due at now.
func (h *dueHeap) pop(now time.Time, limit int) []entry {
	for h.punctual.due(now.Add(-onTime)) {
		heap.Push(&h.late, heap.Pop(&h.punctual))
	}
	var popped []entry
	for len(popped) < limit && h.punctual.due(now) {
		popped = append(popped, heap.Pop(&h.punctual).(entry)) //nolint:forcetypeassert // the heap holds nothing else
	}
	for len(popped) < limit && len(h.late.list) > 0 {
		popped = append(popped, heap.Pop(&h.late).(entry)) //nolint:forcetypeassert // the heap holds nothing else
	}
	return popped
}

// add adds crons. It leaves out crons that are never due again: those with a zero time.
func (h *dueHeap) add(entries ...entry) {
	for _, e := range entries {
		if !e.at.IsZero() {
			heap.Push(&h.punctual, e)
		}
	}
}

// due reports whether the top entry is due at a time.
func (e *entryHeap) due(at time.Time) bool { return len(e.list) > 0 && !e.list[0].at.After(at) }

// countDue counts the entries in the subtree of the i-th entry that are due at a time, at
// most limit of them. It also returns when the last of them is due. In a heap, the parent
// of a due entry is due too.
func (e *entryHeap) countDue(i int, until time.Time, limit int) (last time.Time, n int) {
	if limit <= 0 || i >= len(e.list) || e.list[i].at.After(until) {
		return time.Time{}, 0
	}
	last, n = e.list[i].at, 1
	for _, child := range [...]int{2*i + 1, 2*i + 2} {
		at, more := e.countDue(child, until, limit-n)
		last, n = latest(last, at), n+more
	}
	return last, n
}

func (e *entryHeap) Len() int { return len(e.list) }

func (e *entryHeap) Less(i, j int) bool {
	if e.newestFirst {
		i, j = j, i
	}
	return e.list[i].at.Before(e.list[j].at)
}

func (e *entryHeap) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }

// Push implements heap.Interface.
func (e *entryHeap) Push(x any) { e.list = append(e.list, x.(entry)) } //nolint:forcetypeassert // only add pushes

// Pop implements heap.Interface.
func (e *entryHeap) Pop() any {
	last := len(e.list) - 1
	popped := e.list[last]
	e.list[last] = entry{}
	e.list = e.list[:last]
	return popped
}
