package assign

import (
	"encoding/json"
	"slices"
	"time"
)

// Strategies of placement.
const (
	// LeastLoaded prefers the node with the smallest share of its slots in use.
	LeastLoaded = "least_loaded"
	// RoundRobin takes the nodes in turn.
	RoundRobin = "round_robin"
	// Spread prefers the node with the fewest jobs of the same kind, and of equals
	// the least loaded: a kind that is heavy, or whose node dies, is everywhere.
	Spread = "spread"
)

// job is an available job as a sweep saw it.
type job struct {
	position
	kind, queue string
	capability  string
	tags        map[string]string
	// unreadable: its tags are not strings, so no node has them.
	unreadable bool
	// dueIn is positive for a job whose time has not come yet.
	dueIn time.Duration
	// scan is the index of the scan that found it.
	scan int
	// appliedAt is when the configuration that was in force then was applied.
	appliedAt time.Time
}

// position is a place in River's order. The zero value is before every job.
type position struct {
	priority    int16
	scheduledAt time.Time
	id          int64
}

func parseTags(raw []byte) (tags map[string]string, unreadable bool) {
	if len(raw) == 0 {
		return nil, false
	}
	if err := json.Unmarshal(raw, &tags); err != nil {
		return nil, true
	}
	return tags, false
}

// pick returns the member that should run j, or nil. credit says whether any
// member could take a job of its queue at all: if not, the jobs behind j need
// no look either. A member whose incarnation is avoid comes last.
func pick(j job, members []*member, strategy, avoid string) (best *member, credit bool) {
	for _, m := range members {
		if m.room(j.queue) <= 0 {
			continue
		}
		credit = true
		if m.suits(j) && (best == nil || better(m, best, j.kind, strategy, avoid)) {
			best = m
		}
	}
	return best, credit
}

// suits says whether the member has what the job asks for, apart from room. Each
// of its conditions is explained by rejections.
func (m *member) suits(j job) bool {
	return !j.unreadable && m.works(j) && m.able(j) && m.tagged(j)
}

// works says whether the member has a worker for the job.
func (m *member) works(j job) bool { return m.kinds[j.kind] }

// able says whether it has the capability that the job asks for.
func (m *member) able(j job) bool {
	return j.capability == "" || slices.Contains(m.capabilities, j.capability)
}

// tagged says whether it has the tags that the job asks for.
func (m *member) tagged(j job) bool {
	for key, value := range j.tags {
		if found, ok := m.tags[key]; !ok || found != value {
			return false
		}
	}
	return true
}

// better orders two members that both suit a job of the kind: not the avoided one,
// then the one that the strategy prefers, then the one whose turn is longer ago.
func better(a, b *member, kind, strategy, avoid string) bool {
	if avoid != "" && (a.incarnation == avoid) != (b.incarnation == avoid) {
		return b.incarnation == avoid
	}
	if left, right := a.crowd[kind], b.crowd[kind]; strategy == Spread && left != right {
		return left < right
	}
	if strategy != RoundRobin {
		// used/slots compared without dividing; a member with room has slots.
		if left, right := a.used()*b.slots, b.used()*a.slots; left != right {
			return left < right
		}
	}
	return a.turn < b.turn
}
