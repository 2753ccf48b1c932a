package crons

import (
	"container/heap"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// agenda is when to look at which cron: those that wait, the earliest first,
// and those that are due, the freshest first.
type agenda struct {
	waiting entries
	due     entries
}

// entry is a cron and when to look at it.
type entry struct {
	name string
	at   time.Time
}

// entries is a heap.
type entries struct {
	list    []entry
	freshen bool // the latest on top, else the earliest
}

func newAgenda(upcoming []cronstore.Upcoming) *agenda {
	a := &agenda{due: entries{freshen: true}}
	for _, u := range upcoming {
		if !u.Next.IsZero() {
			a.waiting.list = append(a.waiting.list, entry{u.Name, u.Next})
		}
	}
	heap.Init(&a.waiting)
	return a
}

// next returns when there is something to do; false if there never is.
func (a *agenda) next() (time.Time, bool) {
	switch {
	case len(a.due.list) > 0:
		return a.due.list[0].at, true
	case len(a.waiting.list) > 0:
		return a.waiting.list[0].at, true
	default:
		return time.Time{}, false
	}
}

// take removes at most limit crons that are due at now, the freshest first.
func (a *agenda) take(now time.Time, limit int) []entry {
	for len(a.waiting.list) > 0 && !a.waiting.list[0].at.After(now) {
		heap.Push(&a.due, heap.Pop(&a.waiting))
	}
	taken := make([]entry, 0, min(limit, len(a.due.list)))
	for len(taken) < limit && len(a.due.list) > 0 {
		taken = append(taken, heap.Pop(&a.due).(entry)) //nolint:forcetypeassert // the heap holds nothing else
	}
	return taken
}

// add puts crons back; those that are never due again (zero) are left out.
func (a *agenda) add(back ...entry) {
	for _, e := range back {
		if !e.at.IsZero() {
			heap.Push(&a.waiting, e)
		}
	}
}

func (e *entries) Len() int { return len(e.list) }

func (e *entries) Less(i, j int) bool {
	if e.freshen {
		i, j = j, i
	}
	return e.list[i].at.Before(e.list[j].at)
}

func (e *entries) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }

// Push implements heap.Interface.
func (e *entries) Push(x any) { e.list = append(e.list, x.(entry)) } //nolint:forcetypeassert // only add pushes

// Pop implements heap.Interface.
func (e *entries) Pop() any {
	last := len(e.list) - 1
	popped := e.list[last]
	e.list[last] = entry{}
	e.list = e.list[:last]
	return popped
}
