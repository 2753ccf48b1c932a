package assign

import (
	"time"
)

const (
	// minPage and maxPage bound the jobs read of one queue at once.
	minPage, maxPage = 100, 2000
	// topInterval is how often a queue with a backlog is read from the top.
	topInterval = 200 * time.Millisecond
)

// lane is how far the sweep of one queue has come. While a backlog lasts it
// holds a deep cursor, beside which the top is read again every topInterval.
type lane struct {
	queue string
	deep  position // zero: the next scan begins at the top
	topAt time.Time
	// backlog: the last scan left jobs unread or without credit.
	backlog bool
	// counting counts the jobs of this pass that no member could take, and
	// waiting those of the last whole pass.
	counting, waiting int
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
	// stopped: credit ran out before the page did.
	stopped  bool
	unplaced int
}

// scans plans the reading of a lane for which room more jobs can be offered
// while flying jobs are under way.
func (l *lane) scans(now time.Time, room, flying int) []scan {
	if room <= 0 {
		return nil
	}
	limit := min(maxPage, max(minPage, 2*room)+flying)
	if l.deep == (position{}) {
		l.topAt = now
		return []scan{{lane: l, limit: limit}}
	}
	plan := []scan{{lane: l, after: l.deep, limit: limit, last: l.deep}}
	if now.Sub(l.topAt) >= topInterval {
		l.topAt = now
		plan = append(plan, scan{lane: l, limit: limit, again: true})
	}
	return plan
}

// done moves the lane on after a scan was dealt with.
func (l *lane) done(s scan) {
	if s.again {
		return
	}
	l.counting += s.unplaced
	l.backlog = s.stopped || s.read == s.limit
	if l.backlog {
		l.deep = s.last
		return
	}
	l.deep = position{}
	l.waiting, l.counting = l.counting, 0
}
