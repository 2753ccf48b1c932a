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
	// unplacedRetry is how long a job that no member could take is left out. maxLeftOut is the
	// maximum number of such jobs of a queue, and of keys.
	unplacedRetry = 2 * time.Second
	maxLeftOut    = 10_000
)

// fairTurns is where the turns of a fair queue are. A fair queue is read key by key, so the
// backlog of one key delays another key by one turn only. Its index has to be ready.
type fairTurns struct {
	queue jobstore.FairQueue
	from  jobstore.FairPosition
	pages int
	// backlog reports that the last page left jobs unread or without credit.
	backlog bool
	// offered contains the jobs with pending offers, the oldest first. Pages do not contain them.
	offered []offeredTurn
	// leftOut contains jobs that could not be placed, and fullKeys keys whose limit is reached.
	// Pages do not contain them until retryAt, so that they delay no other jobs.
	leftOut  []int64
	fullKeys []string
	retryAt  time.Time
}

// offeredTurn is a job that was offered at a time.
type offeredTurn struct {
	id int64
	at time.Time
}

// jobstoreScan returns the read of a page, without the jobs that were offered within claimTimeout.
func (f *fairTurns) jobstoreScan(limit int, claimTimeout time.Duration, now time.Time) jobstore.FairScan {
	f.retry(now)
	pending := slices.IndexFunc(f.offered, func(o offeredTurn) bool { return now.Sub(o.at) < claimTimeout })
	if pending < 0 {
		pending = len(f.offered)
	}
	f.offered = slices.Delete(f.offered, 0, pending)
	skip := make([]int64, 0, len(f.offered)+len(f.leftOut))
	for _, o := range f.offered {
		skip = append(skip, o.id)
	}
	return jobstore.FairScan{
		FairQueue: f.queue, From: f.from, Limit: limit, OldestFirst: f.pages%oldestEvery == 0,
		Skip: append(skip, f.leftOut...), SkipKeys: f.fullKeys,
	}
}

// serve records that a job of a key was placed. After as many jobs as its weight, the turn of
// the key is over.
func (f *fairTurns) serve(key string) {
	if f.from.Key != key {
		f.from = jobstore.FairPosition{Key: key}
	}
	if f.from.Served++; f.from.Served >= f.queue.Weight(key) {
		f.from.Served = 0
	}
}

// leaveOut leaves a job out of the pages for a time.
func (f *fairTurns) leaveOut(id int64, now time.Time, retry time.Duration) {
	f.retryBy(now.Add(retry))
	if len(f.leftOut) < maxLeftOut {
		f.leftOut = append(f.leftOut, id)
	}
}

// skipKey leaves the jobs of a key out of the pages for a time.
func (f *fairTurns) skipKey(key string, now time.Time) {
	f.retryBy(now.Add(limitedTopInterval))
	if len(f.fullKeys) < maxLeftOut {
		f.fullKeys = append(f.fullKeys, key)
	}
}

func (f *fairTurns) retryBy(at time.Time) { f.retryAt = earliest(f.retryAt, at) }

// retry ends what pages leave out if it is time.
func (f *fairTurns) retry(now time.Time) {
	if now.Before(f.retryAt) {
		return
	}
	f.leftOut, f.fullKeys, f.retryAt = nil, nil, time.Time{}
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
	q.fair.pages++
	return []scanPage{{queueScan: q, limit: min(maxPage, max(minPage, room)), byKey: map[string][]job{}}}
}

// placeTurn places the next job of a key that a member can take. It returns false if the queue has
// no credit or place left.
func (l *loop) placeTurn(s *scanPage, key string, assigned map[*member]jobsByQueue) bool {
	fair := s.queueScan.fair
	for len(s.byKey[key]) > 0 {
		j := s.byKey[key][0]
		s.byKey[key] = s.byKey[key][1:]
		unplaced := s.unplaced
		s.fullGroup = group{}
		if !l.placeOne(s, j, assigned) {
			return false
		}
		switch placed := l.pendingOffers[j.id].at.Equal(l.lastStep); {
		case placed:
			fair.serve(key)
			s.progress = true
			return true
		case l.paused[j.id]:
			fair.leaveOut(j.id, l.lastStep, unplacedRetry)
		case s.unplaced == unplaced: // not due yet
			continue
		case l.fills(s.fullGroup, fair.queue):
			fair.skipKey(key, l.lastStep)
			s.byKey[key] = nil
		case s.fullGroup != group{}:
			fair.leaveOut(j.id, l.lastStep, limitedTopInterval)
		default:
			fair.leaveOut(j.id, l.lastStep, unplacedRetry)
		}
		s.progress = true
	}
	return true
}

// fills reports whether a full group holds all jobs of a key of the queue back: that of the
// queue's limit or rate by the same key.
func (l *loop) fills(full group, queue jobstore.FairQueue) bool {
	return full.class != jobstore.ClassAll && full.class != jobstore.ClassNode && full.scope == jobstore.ScopeQueue && l.limits.inForce[full.limitID].Key == queue.Key.String()
}

// advanceTurns records the result of a page.
func (q *queueScan) advanceTurns(s scanPage) {
	q.fair.backlog = s.stopped || s.progress && (s.more || s.read == s.limit)
	q.waiting, q.unworked = len(q.fair.leftOut), s.unworked
}

// hasBacklog reports whether the last pages left jobs unread or without credit.
func (q *queueScan) hasBacklog() bool { return q.backlog || q.fair != nil && q.fair.backlog }

// setFair makes the queue fair, or not. The turns continue where they are if the key stays.
func (q *queueScan) setFair(wanted jobstore.FairQueue, ready bool) {
	switch {
	case !ready, failpoint.Off("assign/turns"):
		q.fair = nil
	case q.fair == nil || q.fair.queue.IndexName() != wanted.IndexName():
		q.fair = &fairTurns{queue: wanted}
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
			j.scan, j.fairKey = i, f.Key
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
