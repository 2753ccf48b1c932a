package riveradapter

import (
	"slices"
	"time"
)

// uncertainTimeout is how long after an unanswered claim the node searches for jobs that
// it may hold. A server may execute a statement long after its sender has given up, for
// example when it resumes after a freeze.
const uncertainTimeout = 10 * time.Minute

// uncertainClaim is a job whose claim may or may not have been executed.
type uncertainClaim struct {
	id  int64
	due time.Time // time of the next check
}

// markUncertain keeps ids whose claim may or may not have been executed. They are looked
// up from due on. Those of a queue that the node no longer works are dropped: nothing looks
// them up, and they would take slots for good.
func (b *claimBuffer) markUncertain(queue string, ids []int64, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[queue] -= len(ids)
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		delete(b.own, id)
		if b.queues[queue] > 0 {
			b.uncertain[queue] = append(b.uncertain[queue], uncertainClaim{id: id, due: due})
		}
	}
	b.uncertainUntil = time.Now().Add(uncertainTimeout)
	signal(b.changed)
}

// addUncertain adds a job that the database assigns to this node, to be looked up, unless
// the job is in the buffer.
func (b *claimBuffer) addUncertain(queue string, id int64) (added bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ours := b.own[id]; ours || b.contains(queue, id) || b.queues[queue] == 0 {
		return false
	}
	b.uncertain[queue] = append(b.uncertain[queue], uncertainClaim{id: id})
	signal(b.wanted)
	return true
}

// mayBeUncertain reports whether an unanswered claim may still be executed.
func (b *claimBuffer) mayBeUncertain() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.uncertainUntil)
}

// takeUncertain moves at most limit due uncertain jobs to active, to be looked up.
func (b *claimBuffer) takeUncertain(queue string, limit int, now time.Time) (ids []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uncertain[queue] = slices.DeleteFunc(b.uncertain[queue], func(j uncertainClaim) bool {
		if _, ours := b.own[j.id]; ours {
			return true
		}
		if len(ids) >= limit || j.due.After(now) {
			return false
		}
		ids = append(ids, j.id)
		b.own[j.id] = ownJob{}
		return true
	})
	b.active[queue] += len(ids)
	return ids
}
