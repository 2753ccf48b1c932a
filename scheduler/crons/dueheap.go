package crons

import (
	"container/heap"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// dueHeap orders crons by the time of their next check, their Next. Crons that are still on time come
// first, the earliest of them first, so an overloaded leader serves every cron.
// Crons with a backlog follow, the latest of them first.
type dueHeap struct {
	punctual cronHeap // ordered by next check, the earliest on top
	late     cronHeap // the latest on top
}

// cronHeap implements heap.Interface.
type cronHeap struct {
	list        []cronstore.Upcoming
	newestFirst bool // whether the latest or the earliest is on top
}

func newDueHeap() *dueHeap { return &dueHeap{late: cronHeap{newestFirst: true}} }

// next returns the time of the next check. It returns false if the heap is empty.
func (h *dueHeap) next() (time.Time, bool) {
	switch {
	case len(h.late.list) > 0:
		return h.late.list[0].Next, true
	case len(h.punctual.list) > 0:
		return h.punctual.list[0].Next, true
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
	return h.punctual.countDue(0, h.punctual.list[0].Next.Add(span), limit)
}

// pop removes at most limit crons that are due at now.
func (h *dueHeap) pop(now time.Time, limit int) []cronstore.Upcoming {
	for h.punctual.due(now.Add(-onTime)) {
		heap.Push(&h.late, heap.Pop(&h.punctual))
	}
	var popped []cronstore.Upcoming
	for len(popped) < limit && h.punctual.due(now) {
		popped = append(popped, heap.Pop(&h.punctual).(cronstore.Upcoming)) //nolint:forcetypeassert // the heap holds nothing else
	}
	for len(popped) < limit && len(h.late.list) > 0 {
		popped = append(popped, heap.Pop(&h.late).(cronstore.Upcoming)) //nolint:forcetypeassert // the heap holds nothing else
	}
	return popped
}

// add adds crons. It leaves out crons that are never due again: those with a zero time.
func (h *dueHeap) add(crons ...cronstore.Upcoming) {
	for _, c := range crons {
		if !c.Next.IsZero() {
			heap.Push(&h.punctual, c)
		}
	}
}

// due reports whether the top entry is due at a time.
func (h *cronHeap) due(at time.Time) bool { return len(h.list) > 0 && !h.list[0].Next.After(at) }

// countDue counts the entries in the subtree of the i-th entry that are due at a time, at
// most limit of them. It also returns when the last of them is due. In a heap, the parent
// of a due entry is due too.
func (h *cronHeap) countDue(i int, until time.Time, limit int) (last time.Time, n int) {
	if limit <= 0 || i >= len(h.list) || h.list[i].Next.After(until) {
		return time.Time{}, 0
	}
	last, n = h.list[i].Next, 1
	for _, child := range [...]int{2*i + 1, 2*i + 2} {
		at, more := h.countDue(child, until, limit-n)
		last, n = latest(last, at), n+more
	}
	return last, n
}

func (h *cronHeap) Len() int { return len(h.list) }

func (h *cronHeap) Less(i, j int) bool {
	if h.newestFirst {
		i, j = j, i
	}
	return h.list[i].Next.Before(h.list[j].Next)
}

func (h *cronHeap) Swap(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] }

// Push implements heap.Interface.
func (h *cronHeap) Push(x any) { h.list = append(h.list, x.(cronstore.Upcoming)) } //nolint:forcetypeassert // only add pushes

// Pop implements heap.Interface.
func (h *cronHeap) Pop() any {
	last := len(h.list) - 1
	popped := h.list[last]
	h.list[last] = cronstore.Upcoming{}
	h.list = h.list[:last]
	return popped
}
