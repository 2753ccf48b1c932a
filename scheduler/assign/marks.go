package assign

import (
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// markDelay is how long a position must be the lowest before a scan starts at it. Jobs of
// transactions that commit within this time are still found by the scans.
const markDelay = 300 * time.Millisecond

// marks are the low-water marks of a queue: for each priority the position up to which no
// job is available, as far as the scans have seen. Scans start at the marks if that saves much:
// from the beginning of a queue, a scan walks over every version of every ended job that a
// snapshot still protects.
//
// Jobs may appear below a mark: another transaction commits late, a program inserts a job
// with an earlier time, a job is made available again. belowCheck finds them, and
// notifications that name a time lower the marks at once.
type marks [jobstore.Priorities]mark

type mark struct {
	// low is the mark. next is the next one, since when it has been the lowest position.
	low, next jobstore.Position
	since     time.Time
}

// after returns the positions after which a scan reads.
func (m *marks) after() (after [jobstore.Priorities]jobstore.Position) {
	for p := range m {
		after[p] = m[p].low
	}
	return after
}

// note records the result of a scan from the marks: for each priority the position before its
// lowest available job, or nil if that is unknown. The mark moves to the lowest position of
// all scans since it was noted first.
func (m *marks) note(lowest [jobstore.Priorities]*jobstore.Position, now time.Time) {
	for p, position := range lowest {
		if position == nil {
			continue
		}
		mark := &m[p]
		switch {
		case mark.since.IsZero():
			mark.next, mark.since = *position, now
			continue
		case position.Before(mark.next):
			mark.next = *position
		}
		if now.Sub(mark.since) >= markDelay {
			mark.low, mark.next, mark.since = mark.next, *position, now
		}
	}
}

// lower moves the mark of a priority down to a position, if it is higher.
func (m *marks) lower(priority int, to jobstore.Position) {
	mark := &m[priority-1]
	if to.Before(mark.low) {
		mark.low = to
	}
	if to.Before(mark.next) {
		mark.next = to
	}
}

// lowerAll moves the marks of all priorities down to a time.
func (m *marks) lowerAll(to time.Time) {
	for p := range m {
		m.lower(p+1, jobstore.Position{ScheduledAt: to})
	}
}

// before returns the position just before a job.
func before(scheduledAt time.Time, id int64) jobstore.Position {
	return jobstore.Position{ScheduledAt: scheduledAt, ID: id - 1}
}
