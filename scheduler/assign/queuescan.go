package assign

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// minPage and maxPage limit how many jobs of one queue are read at once. While there
	// are jobs that no member can take, a page has at least widePage jobs, because later
	// jobs may be placed.
	minPage, widePage, maxPage = 20, 200, 2000
	// topInterval is how often a queue with a backlog is read from the top.
	topInterval = 200 * time.Millisecond
	// limitedTopInterval replaces topInterval while limits of keys or kinds hold jobs back:
	// these wait at the top, and a place is free as soon as a job ends.
	limitedTopInterval = 20 * time.Millisecond
	// topShare is the minimum of that interval, in multiples of the duration of a sweep.
	topShare = 5
	// offerShare extends the claim timeout by multiples of the duration of a sweep.
	offerShare = 4
)

// queueScan is the sweep's position in one queue. The top of the queue is its beginning, or
// where the marks are if a read from the beginning takes long. During a backlog, the cursor is
// deep in the queue, and what is before it is read again: every topInterval the top, and a page of
// the rest, in which jobs wait that could not be placed.
type queueScan struct {
	queue     string
	marks     marks
	cursor    position // zero means that the next scan starts at the top
	again     position // where the pages before the cursor continue; zero means behind the top
	topReadAt time.Time
	// heldUntil is when a queue that has reached its limit is read again.
	heldUntil time.Time
	// backlog reports that the last scan left jobs unread or without credit. hasUnplaced
	// reports that it found jobs that no member could take, or that are paused.
	backlog, hasUnplaced bool
	// hasLimited reports that at the top of the queue, a limit of a key or kind held jobs back.
	hasLimited bool
	// counting is the number of jobs in this pass that no member could take. waiting is
	// that number for the last complete pass.
	counting, waiting int
	// countingUnworked and unworked are these numbers by kind, for kinds that no member
	// works.
	countingUnworked, unworked kindCounts
	// fair is nil unless the queue is read in turns, and not by position.
	fair *fairTurns
}

// scanPage is one page of a queue.
type scanPage struct {
	queueScan *queueScan
	after     position // zero means from the top
	limit     int
	// extra marks a page before the cursor, or of all turns, which does not move it.
	extra bool
	// due is set in a page that is read for the one job of a hold, and does not move the cursor.
	due *dueHold
	// fromMarks reports that the top is at the marks, and not at the beginning of the queue.
	fromMarks bool
	// byKey contains the jobs of each key in a page that is read in turns; nil for other pages. more
	// reports that a key may have jobs that the page does not have, and progress that the next
	// page will have others.
	byKey          map[string][]job
	more, progress bool

	read int
	last position // last handled job
	// lastRead is the last job of the page, and lowest the position before the first job of
	// each priority.
	lastRead position
	lowest   [jobstore.Priorities]*jobstore.Position
	// stopped reports that credit ran out before the end of the page. held reports that
	// the queue has reached its limit, and heldFor for how long at least.
	stopped bool
	held    bool
	heldFor time.Duration
	// limited reports that a limit of a key or kind held a job back. fullGroup is the last one.
	limited   bool
	fullGroup group
	unplaced  int
	// paused reports that a pause held a job back.
	paused bool
	// unworked counts the unplaced jobs of kinds that no member works.
	unworked kindCounts
}

// scans returns the pages to read from a queue. room is how many more jobs can be
// offered. pending is the number of pending offers: their jobs stay at the top until they
// are claimed. A page after the cursor contains only jobs that can be offered. A page
// from the top is due every topEvery.
func (q *queueScan) scans(now time.Time, room, pending int, topEvery time.Duration) []scanPage {
	if room <= 0 || now.Before(q.heldUntil) || q.fair != nil {
		return nil
	}
	page := max(minPage, room)
	if q.hasUnplaced {
		page = max(widePage, 2*room)
	}
	top := scanPage{queueScan: q, limit: min(maxPage, page+pending)}
	if q.cursor == (position{}) {
		q.topReadAt = now
		return []scanPage{top}
	}
	plan := []scanPage{{queueScan: q, after: q.cursor, limit: min(maxPage, page), last: q.cursor}}
	if now.Sub(q.topReadAt) >= topEvery {
		q.topReadAt, top.extra = now, true
		plan = append(plan, top)
		if q.again != (position{}) {
			plan = append(plan, scanPage{queueScan: q, after: q.again, limit: min(maxPage, page), last: q.again, extra: true})
		}
	}
	return plan
}

// jobstoreScan returns the read of the page.
func (s *scanPage) jobstoreScan() jobstore.Scan {
	scan := jobstore.Scan{Queue: s.queueScan.queue, First: 1, Limit: s.limit}
	if s.fromMarks {
		scan.After = s.queueScan.marks.after()
	}
	if s.after != (position{}) {
		scan.First = s.after.priority
		scan.After[s.after.priority-1] = jobstore.Position{ScheduledAt: s.after.scheduledAt, ID: s.after.id}
	}
	return scan
}

// note records a job of the page, in the order of the queue.
func (s *scanPage) note(j job) {
	s.read++
	s.lastRead = j.position
	if s.lowest[j.priority-1] == nil {
		position := before(j.scheduledAt, j.id)
		s.lowest[j.priority-1] = &position
	}
}

// noteScans moves the marks after pages were read. A paused queue was not read.
func noteScans(scans []scanPage, scanned jobstore.Scanned, now time.Time) {
	for i := range scans {
		if !scanned.Paused[i] {
			scans[i].queueScan.noteMarks(scans[i], scanned.Now, now)
		}
	}
}

// noteMarks moves the marks after a page from the top was read at a time of the database. A
// priority without jobs has none that is due before that time.
func (q *queueScan) noteMarks(s scanPage, databaseNow, now time.Time) {
	if s.after != (position{}) {
		return
	}
	for p := range s.lowest {
		complete := s.read < s.limit || p+1 < int(s.lastRead.priority)
		if s.lowest[p] == nil && complete {
			s.lowest[p] = &jobstore.Position{ScheduledAt: databaseNow}
		}
	}
	q.marks.note(s.lowest, now)
}

// advance moves the cursor after a page was handled.
func (q *queueScan) advance(s scanPage) {
	if s.byKey != nil {
		q.advanceTurns(s)
		return
	}
	if s.after == (position{}) {
		q.hasLimited = s.limited
	}
	if s.due != nil {
		return
	}
	if s.extra {
		q.advanceAgain(s)
		return
	}
	q.counting += s.unplaced
	for kind, jobs := range s.unworked {
		q.countingUnworked = q.countingUnworked.add(kind, jobs)
	}
	q.backlog, q.hasUnplaced = s.stopped || s.read == s.limit, s.unplaced > 0 || s.paused
	if q.backlog {
		q.cursor = s.last
		return
	}
	q.cursor, q.again = position{}, position{}
	q.waiting, q.counting = q.counting, 0
	q.unworked, q.countingUnworked = q.countingUnworked, nil
}

// advanceAgain moves the position of the pages before the cursor after one of them, or after the top.
func (q *queueScan) advanceAgain(s scanPage) {
	switch {
	case s.after != q.again: // the top, while another page continues
	case (s.stopped || s.read == s.limit) && s.last.compare(q.cursor) < 0:
		q.again = s.last
	default:
		q.again = position{}
	}
}

// availableJob returns a job that a scan found.
func availableJob(found *jobstore.AvailableJob) job {
	j := job{
		position: position{found.Priority, found.ScheduledAt, found.ID}, kind: found.Kind, queue: found.Queue,
		capability: found.Capability, dueIn: found.DueIn, scan: found.Scan, appliedAt: found.AppliedAt,
	}
	j.tags, j.unreadable = parseTags(found.Tags)
	return j
}

// sweep appends the jobs of all scans to jobs, in one order.
func sweep(ctx context.Context, pool *pgxpool.Pool, scans []scanPage, jobs []job) ([]job, jobstore.Scanned, error) {
	reads := make([]jobstore.Scan, len(scans))
	for i := range scans {
		reads[i] = scans[i].jobstoreScan()
	}
	scanned, err := jobstore.New(pool).ScanAvailable(ctx, reads, lookahead, func(found *jobstore.AvailableJob) {
		j := availableJob(found)
		scans[j.scan].note(j)
		jobs = append(jobs, j)
	})
	return jobs, scanned, err
}
