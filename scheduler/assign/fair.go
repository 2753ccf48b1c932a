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
	// indexRetry is the pause after an index of a fair queue could not be built.
	indexRetry = time.Minute
	// unplacedRetry is when a job that no member could take is tried again. maxLeftOut is the
	// maximum number of jobs of a queue that are left out, and maxFullKeys of keys.
	unplacedRetry = 2 * time.Second
	maxLeftOut    = 10_000
	maxFullKeys   = 1000
	// passPages is the maximum number of pages of a pass: more than wide pages need for
	// maxLeftOut jobs.
	passPages = 2 * maxLeftOut / widePage
)

// fairTurns is where the turns of a fair queue are. A fair queue is read key by key, so the
// backlog of one key delays another key by one turn only. Its index has to be ready.
type fairTurns struct {
	queue jobstore.FairQueue
	from  jobstore.FairPosition
	pages int
	// A pass reads rounds of all keys until one of them finds nothing to place or to leave out.
	// passBegan is the page with which it has begun to leave out jobs. passFrom is the key after
	// which its round has begun, and around reports that the round has come past that key.
	passBegan int
	passFrom  string
	around    bool
	// backlog reports that the last page of the pass left jobs unread or without credit.
	backlog bool
	// offered contains the jobs with pending offers, the oldest first. Pages do not contain them.
	offered []offeredTurn
	// leftOut contains jobs that could not be placed: the pages of the pass do not contain them,
	// so that they delay no other jobs. At retryAt, a page of all jobs tries them again. Until
	// then, pages do not contain the keys of fullKeys either, whose limit is reached.
	leftOut  map[int64]bool
	fullKeys map[string]bool
	retryAt  time.Time
	fromTop  bool // the last page was one of all jobs
}

func newFairTurns(queue jobstore.FairQueue) *fairTurns {
	return &fairTurns{queue: queue, leftOut: map[int64]bool{}, fullKeys: map[string]bool{}}
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
		scan.Skip = slices.AppendSeq(scan.Skip, maps.Keys(f.leftOut))
		scan.SkipKeys = slices.Collect(maps.Keys(f.fullKeys))
	}
	return scan
}

// beginPage begins a pass if the last one has ended, and decides whether the next page is one of
// all jobs: at retryAt, and at most every second one, so that a slow pass comes to its end. It
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
		return !f.backlog
	case !retry:
		return false
	}
	f.retryAt = time.Time{}
	clear(f.fullKeys)
	newPass = !f.backlog || f.pages-f.passBegan > passPages
	if newPass {
		clear(f.leftOut)
	}
	f.fromTop = !newPass
	return newPass
}

func (f *fairTurns) leavesOut() bool { return len(f.leftOut)+len(f.fullKeys) > 0 }

func (f *fairTurns) beginRound(key string) { f.passFrom, f.around = key, false }

// serve records that a job of a key was placed. After as many jobs as its weight, the turn of
// the key is over.
func (f *fairTurns) serve(key string, id int64) {
	delete(f.leftOut, id)
	f.beginRound(key)
	if f.from.Key != key {
		f.from = jobstore.FairPosition{Key: key}
	}
	if f.from.Served++; f.from.Served >= f.queue.Weight(key) {
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

// leaveOut leaves a job out of the pages of the pass, and tries it again at a time. It returns
// false if that was known, or if too many are left out.
func (f *fairTurns) leaveOut(id int64, retryAt time.Time) bool {
	f.retryAt = earliest(f.retryAt, retryAt)
	if len(f.leftOut) >= maxLeftOut || f.leftOut[id] {
		return false
	}
	if len(f.leftOut) == 0 {
		f.passBegan = f.pages
	}
	f.leftOut[id] = true
	return true
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
	return []scanPage{{queueScan: q, limit: min(maxPage, page), byKey: map[string][]job{}, fromTop: q.fair.fromTop}}
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
			fair.serve(key, j.id)
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
		leftOut = fair.leaveOut(j.id, l.lastStep.Add(retry)) || leftOut
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
	q.waiting = len(q.fair.leftOut)
	if s.fromTop {
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

// indexBuild builds and drops indexes of fair queues beside the loop: one at a time, because
// each waits for all older transactions.
type indexBuild struct {
	next    indexWork     // the next change, or nil
	ended   chan struct{} // closed when the running change has ended; nil if none was started
	err     error         // set before ended is closed
	retryAt time.Time
	// none reports that there was no index and none was needed at the last read.
	none bool
}

// indexWork changes an index.
type indexWork func(ctx context.Context, store *jobstore.Store) error

func (b *indexBuild) hasEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// wait waits until the running change has ended.
func (b *indexBuild) wait() {
	if b.ended != nil {
		<-b.ended
	}
}

// readFair reads which indexes are ready, applies that to the queues, and notes which index is
// to be built or dropped next.
func (l *loop) readFair(ctx context.Context) error {
	wanted := l.nodes.inForce.fair
	if len(wanted) == 0 && l.index.none {
		return nil
	}
	var indexes []jobstore.FairIndex
	err := l.within(ctx, func(ctx context.Context) (err error) {
		indexes, err = jobstore.New(l.pool).FairIndexes(ctx)
		return err
	})
	if err != nil {
		return err
	}
	ready := map[string]bool{}
	for _, index := range indexes {
		ready[index.Name] = index.Ready
	}
	for name, q := range l.queueScans {
		fair, ok := wanted[name]
		q.setFair(fair, ok && ready[fair.IndexName()])
	}
	l.index.next, l.index.none = nextIndexWork(wanted, indexes), len(indexes)+len(wanted) == 0
	return nil
}

// nextIndexWork returns the next change that the queues need, or nil. An index that is not ready
// and that no session builds is what an interrupted build left.
func nextIndexWork(wanted map[string]jobstore.FairQueue, indexes []jobstore.FairIndex) indexWork {
	missing := map[string]jobstore.FairQueue{}
	for _, q := range wanted {
		missing[q.IndexName()] = q
	}
	for _, index := range indexes {
		_, needed := missing[index.Name]
		switch {
		case !index.Ready && index.Building:
			return nil
		case !index.Ready || !needed:
			return func(ctx context.Context, store *jobstore.Store) error { return store.DropFairIndex(ctx, index.Name) }
		}
		delete(missing, index.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		return func(ctx context.Context, store *jobstore.Store) error {
			return store.CreateFairIndex(ctx, missing[name])
		}
	}
	return nil
}

// startIndexWork starts the next change, unless one runs or has failed a short time ago. Its
// end triggers a step, which reads the indexes again.
func (l *loop) startIndexWork(ctx context.Context) {
	work := l.index.next
	if work == nil || l.index.ended != nil || l.lastStep.Before(l.index.retryAt) {
		return
	}
	ended := make(chan struct{})
	l.index.ended, l.index.next = ended, nil
	go func() {
		defer l.below.interrupt()
		defer close(ended)
		l.index.err = work(ctx, jobstore.New(l.pool))
	}()
}

// finishIndexWork takes the result of a change that has ended.
func (l *loop) finishIndexWork(ctx context.Context) {
	if !l.index.hasEnded() {
		return
	}
	l.index.ended, l.nodesAt = nil, time.Time{}
	if err := l.index.err; err != nil {
		l.index.retryAt = l.lastStep.Add(indexRetry)
		l.logger.WarnContext(ctx, "cannot change the index of a fair queue; a queue without its index is offered by priority and time",
			"error", err, "retry_in", indexRetry)
	}
}
