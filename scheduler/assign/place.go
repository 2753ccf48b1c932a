package assign

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Placement strategies.
const (
	// LeastLoaded prefers the node with the smallest share of its slots in use.
	LeastLoaded = "least_loaded"
	// RoundRobin picks the nodes in turn.
	RoundRobin = "round_robin"
	// Spread prefers the node with the fewest jobs of the same kind, and among equals the
	// least loaded. It limits the effect of a heavy kind and of a dead node.
	Spread = "spread"
)

// job is an available job as read by a sweep.
type job struct {
	position
	kind, queue string
	capability  string
	tags        map[string]string
	// unreadable reports that the tags are not strings, so no node matches them.
	unreadable bool
	// dueIn is positive if the job is not due yet.
	dueIn time.Duration
	// keys is nil for a job without a limit by key and without a rate.
	keys *jobKeys
	// scan is the index of the scanPage that contains the job.
	scan int
	// inTurn reports that the job's queue is read in turns, and fairKey is the job's key then.
	inTurn  bool
	fairKey string
	// appliedAt is when the configuration in force at the sweep was applied.
	appliedAt time.Time
}

// position is a position in River's order. The zero value sorts before every job.
type position struct {
	priority    int16
	scheduledAt time.Time
	id          int64
}

// compare orders positions as jobs are offered.
func (p position) compare(other position) int {
	return cmp.Or(cmp.Compare(p.priority, other.priority), p.scheduledAt.Compare(other.scheduledAt), cmp.Compare(p.id, other.id))
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

// pick returns the member that should run j, or nil. credit reports whether any member
// has room in j's queue. If not, later jobs of the queue need not be checked. A member
// with the incarnation avoid is the last choice. full reports whether a limit holds the job back
// on a member; held is the last such limit, zero if there is none.
func pick(j job, members []*member, strategy, avoid string, full func(*member, job) (refusal, bool)) (best *member, credit bool, held group) {
	for _, m := range members {
		if m.room(j.queue) <= 0 {
			continue
		}
		credit = true
		if !m.suits(j) {
			continue
		}
		if r, is := full(m, j); is {
			held = r.group
			continue
		}
		if best == nil || better(m, best, j.kind, strategy, avoid) {
			best = m
		}
	}
	return best, credit, held
}

// suits reports whether the member meets the requirements of the job, apart from room.
// rejections explains each condition.
func (m *member) suits(j job) bool {
	return !j.unreadable && m.works(j) && m.hasCapability(j) && m.hasTags(j)
}

// works reports whether the member has a worker for the job.
func (m *member) works(j job) bool { return m.kinds[j.kind] }

// hasCapability reports whether the member has the required capability.
func (m *member) hasCapability(j job) bool {
	return j.capability == "" || slices.Contains(m.capabilities, j.capability)
}

// hasTags reports whether the member has the required tags.
func (m *member) hasTags(j job) bool {
	for key, value := range j.tags {
		if found, ok := m.tags[key]; !ok || found != value {
			return false
		}
	}
	return true
}

// better reports whether a is a better choice than b; both suit a job of the kind. The
// avoided member comes last. Then the strategy decides, then the less recent pick.
func better(a, b *member, kind, strategy, avoid string) bool {
	if avoid != "" && (a.incarnation == avoid) != (b.incarnation == avoid) {
		return b.incarnation == avoid
	}
	if left, right := a.runningByKind[kind], b.runningByKind[kind]; strategy == Spread && left != right {
		return left < right
	}
	if strategy != RoundRobin {
		// Compares used/slots without a division. A member with room has slots.
		if left, right := a.used()*b.slots, b.used()*a.slots; left != right {
			return left < right
		}
	}
	return a.lastPick < b.lastPick
}
