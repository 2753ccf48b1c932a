package assign

import (
	"time"
)

const (
	// minPage and maxPage bound the jobs read of one queue at once. A page is
	// widePage at least while there are jobs that no member can take: those behind
	// them may have a place.
	minPage, widePage, maxPage = 20, 200, 2000
	// topInterval is how often a queue with a backlog is read from the top.
	topInterval = 200 * time.Millisecond
	// topShare is how many times longer than a sweep takes it is at least.
	topShare = 5
	// offerShare is how many times longer than a sweep takes a node has to claim a job.
	offerShare = 4
)

// lane is how far the sweep of one queue has come. While a backlog lasts it
// holds a deep cursor, beside which the top is read again every topInterval.
type lane struct {
	queue string
	deep  position // zero: the next scan begins at the top
	topAt time.Time
	// heldUntil is when a queue whose limit is reached is read again.
	heldUntil time.Time
	// backlog: the last scan left jobs unread or without credit. stuck: it found
	// some that no member could take.
	backlog, stuck bool
	// counting counts the jobs of this pass that no member could take, and
	// waiting those of the last whole pass.
	counting, waiting int
	// countingUnworked and unworked are the same by kind, of those whose kind no
	// member works.
	countingUnworked, unworked census
}

// scan is one page of a lane.
type scan struct {
	lane  *lane
	after position
	limit int
	// again marks a second look at the top, which does not move the cursor.
	again bool

	read int
	last position // of the jobs dealt with
	// stopped: credit ran out before the page did. held: the queue's limit is
	// reached.
	stopped  bool
	held     bool
	unplaced int
	// unworked are those of them whose kind no member works, by kind.
	unworked census
}

// scans plans the reading of a lane for which room more jobs can be offered
// while flying jobs are under way, and from the top at most every topEvery. Those stand at the top until they are claimed;
// beyond the cursor no job is read that cannot be offered.
func (l *lane) scans(now time.Time, room, flying int, topEvery time.Duration) []scan {
	if room <= 0 || now.Before(l.heldUntil) {
		return nil
	}
	page := max(minPage, room)
	if l.stuck {
		page = max(widePage, 2*room)
	}
	top := scan{lane: l, limit: min(maxPage, page+flying)}
	if l.deep == (position{}) {
		l.topAt = now
		return []scan{top}
	}
	plan := []scan{{lane: l, after: l.deep, limit: min(maxPage, page), last: l.deep}}
	if now.Sub(l.topAt) >= topEvery {
		l.topAt, top.again = now, true
		plan = append(plan, top)
	}
	return plan
}

// done moves the lane on after a scan was dealt with.
func (l *lane) done(s scan) {
	if s.again {
		return
	}
	l.counting += s.unplaced
	for kind, jobs := range s.unworked {
		l.countingUnworked = l.countingUnworked.add(kind, jobs)
	}
	l.backlog, l.stuck = s.stopped || s.read == s.limit, s.unplaced > 0
	if l.backlog {
		l.deep = s.last
		return
	}
	l.deep = position{}
	l.waiting, l.counting = l.counting, 0
	l.unworked, l.countingUnworked = l.countingUnworked, nil
}
