package crons

import (
	"container/heap"
	"time"
)

// agenda is when to look at which cron. Those that are still on time come first,
// and of them the earliest, so that a leader that cannot keep up serves all in
// turn. Behind them come those with a backlog, the freshest first.
type agenda struct {
	waiting entries // by when to look, the earliest on top
	late    entries // the freshest on top
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

func newAgenda() *agenda { return &agenda{late: entries{freshen: true}} }

// next returns when there is something to do; false if there never is.
func (a *agenda) next() (time.Time, bool) {
	switch {
	case len(a.late.list) > 0:
		return a.late.list[0].at, true
	case len(a.waiting.list) > 0:
		return a.waiting.list[0].at, true
	default:
		return time.Time{}, false
	}
}

// crowd returns how many crons are due within a span from the next instant at which
// one is, counting up to most, and when the last of them is; 0 while others are late.
func (a *agenda) crowd(span time.Duration, most int) (at time.Time, n int) {
	if len(a.late.list) > 0 || len(a.waiting.list) == 0 {
		return time.Time{}, 0
	}
	return a.waiting.within(0, a.waiting.list[0].at.Add(span), most)
}

// take removes at most limit crons that are due at now.
func (a *agenda) take(now time.Time, limit int) []entry {
	for a.waiting.due(now.Add(-onTime)) {
		heap.Push(&a.late, heap.Pop(&a.waiting))
	}
	var taken []entry
	for len(taken) < limit && a.waiting.due(now) {
		taken = append(taken, heap.Pop(&a.waiting).(entry)) //nolint:forcetypeassert // the heap holds nothing else
	}
	for len(taken) < limit && len(a.late.list) > 0 {
		taken = append(taken, heap.Pop(&a.late).(entry)) //nolint:forcetypeassert // the heap holds nothing else
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

// due says whether the one on top is due at an instant.
func (e *entries) due(at time.Time) bool { return len(e.list) > 0 && !e.list[0].at.After(at) }

// within counts up to most of the entries at or under the i-th that are due at an
// instant, and says when the last of them is: in a heap they hang together.
func (e *entries) within(i int, until time.Time, most int) (last time.Time, n int) {
	if most <= 0 || i >= len(e.list) || e.list[i].at.After(until) {
		return time.Time{}, 0
	}
	last, n = e.list[i].at, 1
	for _, child := range [...]int{2*i + 1, 2*i + 2} {
		at, more := e.within(child, until, most-n)
		last, n = latest(last, at), n+more
	}
	return last, n
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
