package assign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/limitkey"
)

const (
	// oldestEvery is which share of the pages of a fair queue reads each key's oldest jobs
	// instead of the most urgent ones, so that no priority starves.
	oldestEvery = 8
	// unplacedRetry is when a job that no member could take is tried again. maxPassedKeys is the
	// maximum number of keys of a queue of which jobs are passed, and maxFullKeys of full ones.
	unplacedRetry = 2 * time.Second
	maxPassedKeys = 10_000
	maxFullKeys   = 1000
	// maxPass is the maximum time of a pass while there are always jobs that can be placed.
	maxPass = 5 * time.Minute
)

// fairTurns is where the turns of a fair queue are. A fair queue is read key by key, so the
// backlog of one key delays another key by one turn only. Its index has to be ready.
type fairTurns struct {
	queue jobstore.FairQueue
	from  jobstore.FairPosition
	pages int
	// A pass reads rounds of all keys until one of them finds nothing to place or to pass. passBegan
	// is when it has begun to pass jobs. passFrom is the key after which its round has begun, and
	// around reports that the round has come past that key.
	passBegan time.Time
	passFrom  string
	around    bool
	// backlog reports that the last page of the pass left jobs unread or without credit.
	backlog bool
	// offered contains the jobs with pending offers, the oldest first. Pages do not contain them.
	offered []offeredTurn
	// passed contains, for each priority of a key, the position up to which the pass has read jobs
	// that could not be placed. Its pages begin there, so that these jobs delay no others. leftOut is
	// the number of these jobs. At retryAt, a page from the top tries the first of them again. Until
	// then, pages do not contain the keys of fullKeys either, whose limit is reached.
	passed   map[string]*[jobstore.Priorities]jobstore.Position
	leftOut  int
	fullKeys map[string]bool
	retryAt  time.Time
	fromTop  bool // the last page was one from the top
}

func newFairTurns(queue jobstore.FairQueue) *fairTurns {
	return &fairTurns{queue: queue, passed: map[string]*[jobstore.Priorities]jobstore.Position{}, fullKeys: map[string]bool{}}
}

// offeredTurn is a job that was offered at a time.
type offeredTurn struct {
	id int64
	at time.Time
}

// jobstoreScan returns the read of a page, without the jobs that were offered within claimTimeout.
func (f *fairTurns) jobstoreScan(limit int, claimTimeout time.Duration, now time.Time) jobstore.FairScan {
	pending := slices.IndexFunc(f.offered, func(o offeredTurn) bool { return now.Sub(o.at) < claimTimeout })
	if pending < 0 {
		pending = len(f.offered)
	}
	f.offered = slices.Delete(f.offered, 0, pending)
	scan := jobstore.FairScan{FairQueue: f.queue, From: f.from, Limit: limit, OldestFirst: f.pages%oldestEvery == 0}
	for _, o := range f.offered {
		scan.Skip = append(scan.Skip, o.id)
	}
	if !f.fromTop {
		scan.Passed = f.passed
		scan.SkipKeys = slices.Collect(maps.Keys(f.fullKeys))
	}
	return scan
}

// beginPage begins a pass if the last one has ended, and decides whether the next page is one from
// the top: at retryAt, and at most every second one, so that a slow pass comes to its end. It
// returns whether a pass begins.
func (f *fairTurns) beginPage(now time.Time) (newPass bool) {
	f.pages++
	if !f.backlog {
		f.beginRound(f.from.Key)
	}
	retry := !f.fromTop && !now.Before(f.retryAt)
	f.fromTop = false
	switch {
	case !f.leavesOut():
		f.passBegan = now
		return !f.backlog
	case !retry:
		return false
	}
	f.retryAt = time.Time{}
	clear(f.fullKeys)
	newPass = !f.backlog || now.Sub(f.passBegan) > maxPass
	if newPass {
		clear(f.passed)
		f.leftOut, f.passBegan = 0, now
	}
	f.fromTop = !newPass
	return newPass
}

// endPass has the next page begin a pass.
func (f *fairTurns) endPass() { f.passBegan, f.retryAt = time.Time{}, time.Time{} }

func (f *fairTurns) leavesOut() bool { return len(f.passed)+len(f.fullKeys) > 0 }

func (f *fairTurns) beginRound(key string) { f.passFrom, f.around = key, false }

// serve records that a job was placed. After as many jobs as its weight, the turn of its key is over.
func (f *fairTurns) serve(j job) {
	if f.hasPassed(j) {
		f.leftOut = max(0, f.leftOut-1)
	}
	f.beginRound(j.fairKey)
	if f.from.Key != j.fairKey {
		f.from = jobstore.FairPosition{Key: j.fairKey}
	}
	if f.from.Served++; f.from.Served >= f.queue.Weight(j.fairKey) {
		f.from.Served = 0
	}
}

// endTurn ends the turn of a key of which no job could be placed. If jobs of it were left out, a
// round begins that reads the next ones. It returns false if the round has come past all keys.
func (f *fairTurns) endTurn(key string, leftOut bool) bool {
	last := f.from.Key
	f.from = jobstore.FairPosition{Key: key}
	switch {
	case leftOut:
		f.beginRound(key)
	case last < key:
		f.around = f.around || last < f.passFrom && f.passFrom <= key
	default: // from the last key to the first
		f.around = f.around || last < f.passFrom || f.passFrom <= key
	}
	return !f.around
}

// pass leaves a job out of the pages of the pass with those before it, and tries it again at a time.
// It returns false if it was passed before, or if too many keys have such jobs.
func (f *fairTurns) pass(j job, retryAt time.Time) bool {
	f.retryAt = earliest(f.retryAt, retryAt)
	if f.passed[j.fairKey] == nil {
		if len(f.passed) >= maxPassedKeys {
			return false
		}
		f.passed[j.fairKey] = &[jobstore.Priorities]jobstore.Position{}
	}
	if f.hasPassed(j) {
		return false
	}
	f.passed[j.fairKey][j.priority-1] = jobstore.Position{ScheduledAt: j.scheduledAt, ID: j.id}
	f.leftOut++
	return true
}

// hasPassed reports whether the job is up to the position that the pass has reached.
func (f *fairTurns) hasPassed(j job) bool {
	passed := f.passed[j.fairKey]
	return passed != nil && !passed[j.priority-1].Before(jobstore.Position{ScheduledAt: j.scheduledAt, ID: j.id})
}

// skipKey leaves the jobs of a key out of the pages until a time.
func (f *fairTurns) skipKey(key string, retryAt time.Time) {
	f.retryAt = earliest(f.retryAt, retryAt)
	if len(f.fullKeys) < maxFullKeys {
		f.fullKeys[key] = true
	}
}

// fairQueues returns the queues with fair_by of the settings in force, by name.
func fairQueues(settings []byte) (map[string]jobstore.FairQueue, error) {
	queues, err := config.FairQueues(settings)
	if err != nil {
		return nil, err
	}
	fair := make(map[string]jobstore.FairQueue, len(queues))
	for name, queue := range queues {
		key, err := limitkey.Parse(queue.By)
		if err != nil {
			return nil, fmt.Errorf("fair_by of queue %s: %w", name, err)
		}
		fair[name] = jobstore.FairQueue{Queue: name, Key: key, Weights: queue.Weights}
	}
	return fair, nil
}

// turns returns the page of a fair queue that is read in turns, or none.
func (q *queueScan) turns(now time.Time, room int) []scanPage {
	if q.fair == nil || room <= 0 || now.Before(q.heldUntil) {
		return nil
	}
	if q.fair.beginPage(now) {
		q.unworked, q.countingUnworked = q.countingUnworked, nil
	}
	page := max(minPage, room)
	if q.fair.leavesOut() {
		page = max(widePage, 2*room)
	}
	return []scanPage{{queueScan: q, limit: min(maxPage, page), byKey: map[string][]job{}, extra: q.fair.fromTop}}
}

// placeTurn places the next job of a key that a member can take. It returns false if the queue has
// no credit or place left.
func (l *loop) placeTurn(s *scanPage, key string, assigned map[*member]jobsByQueue) bool {
	if len(s.byKey[key]) == 0 {
		return true
	}
	fair, leftOut := s.queueScan.fair, false
	for len(s.byKey[key]) > 0 {
		j := s.byKey[key][0]
		s.byKey[key] = s.byKey[key][1:]
		unplaced := s.unplaced
		s.fullGroup = group{}
		if !l.placeOne(s, j, assigned) {
			return false
		}
		retry := unplacedRetry
		switch placed := l.pendingOffers[j.id].at.Equal(l.lastStep); {
		case placed:
			fair.serve(j)
			s.progress = true
			return true
		case !l.paused[j.id] && s.unplaced == unplaced: // not due yet
			continue
		case l.fills(s.fullGroup, fair.queue):
			fair.skipKey(key, l.lastStep.Add(limitedTopInterval))
			s.byKey[key] = nil
			continue
		case s.fullGroup != group{}:
			retry = limitedTopInterval
		}
		leftOut = fair.pass(j, l.lastStep.Add(retry)) || leftOut
	}
	s.progress = fair.endTurn(key, leftOut) || s.progress
	return true
}

// fills reports whether a full group holds all jobs of a key of the queue back: that of the
// queue's limit or rate by the same key.
func (l *loop) fills(full group, queue jobstore.FairQueue) bool {
	return full.class != jobstore.ClassAll && full.class != jobstore.ClassNode && full.scope == jobstore.ScopeQueue && l.limits.inForce[full.limitID].Key == queue.Key.String()
}

// advanceTurns records the result of a page.
func (q *queueScan) advanceTurns(s scanPage) {
	q.waiting = q.fair.leftOut
	if s.extra {
		return
	}
	q.fair.backlog = s.stopped || s.progress && (s.more || s.read == s.limit)
	for kind, jobs := range s.unworked {
		q.countingUnworked = q.countingUnworked.add(kind, jobs)
	}
}

// hasBacklog reports whether the last pages left jobs unread or without credit.
func (q *queueScan) hasBacklog() bool { return q.backlog || q.fair != nil && q.fair.backlog }

// setFair makes the queue fair, or not. The turns continue where they are if the key stays.
func (q *queueScan) setFair(wanted jobstore.FairQueue, ready bool) {
	switch {
	case !ready, failpoint.Off("assign/turns"):
		q.fair = nil
	case q.fair == nil || q.fair.queue.IndexName() != wanted.IndexName():
		q.fair = newFairTurns(wanted)
	default:
		q.fair.queue = wanted
	}
}

// sweepTurns adds the jobs of the pages from the index first on, in turns.
func (l *loop) sweepTurns(ctx context.Context, scans []scanPage, first int, jobs []job) ([]job, error) {
	if first == len(scans) {
		return jobs, nil
	}
	for i := first; i < len(scans); i++ {
		s := &scans[i]
		scan := s.queueScan.fair.jobstoreScan(s.limit, l.claimTimeout(), l.lastStep)
		found, err := jobstore.New(l.pool).ScanFair(ctx, scan, lookahead)
		if err != nil {
			return nil, err
		}
		s.read = len(found)
		for _, f := range found {
			j := availableJob(&f.AvailableJob)
			j.scan, j.inTurn, j.fairKey = i, true, f.Key
			jobs = append(jobs, j)
			s.more = s.more || f.More
		}
	}
	return jobs, nil
}
