package riveradapter

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
)

const (
	// maxAnnounced is how many results wait for River's subscribers. More are not
	// announced: a subscriber's channel is smaller.
	maxAnnounced = 10_000
	// announcePage is how many results are passed to River at once.
	announcePage = 1000
)

// MetadataAnnounced is the metadata key that marks the results that AnnouncedJobs passes to
// River. They are written already.
const MetadataAnnounced = "forge:announced"

// errFailed stands for the error of a failed attempt, which the row contains.
var errFailed = errors.New("the attempt failed")

var announcedKey = []byte(strconv.Quote(MetadataAnnounced))

// Announcement is a written result of forge's executor.
type Announcement struct {
	Job *rivertype.JobRow // the current row
	Err error             // the error from which River finds the kind of the event; nil for success
}

// announcements passes the written results of forge's executor to River's client, so that
// its subscribers receive their events. A worker of River, the carrier, returns the
// results as its error. River's executor accepts one that names many jobs, and its
// completer then "writes" them with JobSetStateIfRunningMany, which returns the current
// rows.
type announcements struct {
	news chan struct{} // room for one
	open bool          // set before River's client starts
	// wanted is true once somebody may have subscribed. Until then, nothing is announced.
	wanted atomic.Bool

	mu       sync.Mutex
	closed   bool
	carriers int64 // number of carriers so far
	waiting  bool  // River has a carrier
	pending  []Announcement
	// passed contains the rows that River has. River's completer holds one result for each
	// job, so another result of a job waits, and so does a job that River would run.
	passed map[int64]*rivertype.JobRow
	held   map[int64]Claimed
}

func newAnnouncements() *announcements {
	return &announcements{news: make(chan struct{}, 1), passed: map[int64]*rivertype.JobRow{}, held: map[int64]Claimed{}}
}

// Announce lets the pilot pass results to River's subscribers. carrier is the kind of the
// carrier. Call it before River's client starts.
func (p *Pilot) Announce(carrier string) {
	p.carrierKind, p.announced.open = carrier, true
}

// MayBeSubscribed must be called before River's client is given to somebody who may
// subscribe to its events.
func (p *Pilot) MayBeSubscribed() {
	if !p.announced.wanted.Load() { // most calls are from workers
		p.announced.wanted.Store(true)
	}
}

func (a *announcements) isWanted() bool { return a.open && a.wanted.Load() }

// AnnouncedJobs returns the next results for River's subscribers. It waits until there are
// any, or until CloseAnnouncements.
func (p *Pilot) AnnouncedJobs() []Announcement {
	for {
		page, closed := p.announced.next()
		if len(page) > 0 || closed {
			return page
		}
		<-p.announced.news
	}
}

// CloseAnnouncements lets the last call of AnnouncedJobs return.
func (p *Pilot) CloseAnnouncements() {
	p.announced.mu.Lock()
	defer p.announced.mu.Unlock()
	p.announced.closed = true
	signal(p.announced.news)
}

func (a *announcements) add(all []Announcement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open || a.closed {
		return
	}
	a.pending = append(a.pending, all[:min(len(all), maxAnnounced-len(a.pending))]...)
	signal(a.news)
}

func (a *announcements) next() (page []Announcement, closed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = slices.DeleteFunc(a.pending, func(one Announcement) bool {
		if _, busy := a.passed[one.Job.ID]; busy || len(page) == announcePage {
			return false
		}
		a.passed[one.Job.ID] = one.Job
		page = append(page, one)
		return true
	})
	return page, a.closed
}

// carrier returns a job for River that carries announcements; nil if River has one.
func (a *announcements) carrier(kind, queue string) *rivertype.JobRow {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open || a.closed || a.waiting {
		return nil
	}
	a.waiting = true
	a.carriers++
	now := time.Now().UTC()
	return &rivertype.JobRow{
		ID: -a.carriers, Kind: kind, Queue: queue, State: rivertype.JobStateRunning, Attempt: 1, MaxAttempts: 1, Priority: 1,
		EncodedArgs: []byte("{}"), Metadata: []byte("{}"), AttemptedAt: &now, CreatedAt: now, ScheduledAt: now,
	}
}

// carried records that a carrier has ended, and reports whether another one should start.
func (a *announcements) carried() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = false
	return !a.closed
}

// hold keeps a job that River would run until the announcement of its last result is done.
func (a *announcements) hold(c Claimed) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, busy := a.passed[c.Job.ID]
	if !busy && !slices.ContainsFunc(a.pending, func(one Announcement) bool { return one.Job.ID == c.Job.ID }) {
		return false
	}
	a.held[c.Job.ID] = c
	return true
}

// split returns the rows of announced results, and the results that must be written.
func (a *announcements) split(params *riverdriver.JobSetStateIfRunningManyParams) (rows []*rivertype.JobRow, rest *riverdriver.JobSetStateIfRunningManyParams) {
	done := map[int64]*rivertype.JobRow{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, id := range params.ID {
		if !bytes.Contains(params.MetadataUpdates[i], announcedKey) {
			continue
		}
		done[id] = a.passed[id]
		if row := a.passed[id]; row != nil { // otherwise done before a part of River's batch failed
			rows = append(rows, row)
		}
	}
	if len(done) == 0 {
		return nil, params
	}
	return rows, without(params, done)
}

// done removes announced results, and returns the jobs that were held for them.
func (a *announcements) done(rows []*rivertype.JobRow) (released []Claimed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, row := range rows {
		delete(a.passed, row.ID)
		if c, ok := a.held[row.ID]; ok && !slices.ContainsFunc(a.pending, func(one Announcement) bool { return one.Job.ID == row.ID }) {
			delete(a.held, row.ID)
			released = append(released, c)
		}
	}
	if len(rows) > 0 && len(a.pending) > 0 {
		signal(a.news)
	}
	return released
}

// announcePlain announces plain successes.
func (p *Pilot) announcePlain(plain []Result) {
	if !p.announced.isWanted() {
		return
	}
	all := make([]Announcement, len(plain))
	for i := range plain {
		all[i] = Announcement{Job: asCompleted(plain[i].Job, plain[i].End)}
	}
	p.announced.add(all)
}

// announceRows announces results with their current rows.
func (p *Pilot) announceRows(results []Result, rows []*rivertype.JobRow) {
	if !p.announced.isWanted() || len(rows) == 0 {
		return
	}
	current := make(map[int64]*rivertype.JobRow, len(rows))
	for _, row := range rows {
		current[row.ID] = row
	}
	all := make([]Announcement, 0, len(rows))
	for i := range results {
		if row := current[results[i].Job.ID]; row != nil {
			all = append(all, Announcement{Job: row, Err: results[i].reason()})
		}
	}
	p.announced.add(all)
}

// reason returns an error from which River finds the same reason.
func (r *Result) reason() error {
	if r.Params == nil {
		return nil
	}
	switch r.Params.Reason {
	case riverdriver.JobSetStateReasonCancelled:
		return rivertype.ErrJobCancelledRemotely
	case riverdriver.JobSetStateReasonFailed:
		return errFailed
	case riverdriver.JobSetStateReasonInterrupted:
		return context.Canceled
	case riverdriver.JobSetStateReasonSnoozed:
		return &rivertype.JobSnoozeError{}
	case riverdriver.JobSetStateReasonCompleted:
	}
	return nil
}
