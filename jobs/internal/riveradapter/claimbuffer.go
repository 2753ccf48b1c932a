package riveradapter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/wire"
)

// offerTimeout is how long an offer may wait for its claim before it is dropped. The
// leader then offers the job again, to this node or another. Offers wait if their queue
// is paused or if the node has fewer free slots than the leader assumed.
const offerTimeout = 5 * time.Second

type bufferedOffer struct {
	id      int64
	at      time.Time
	limited bool
	// row and locks describe a limited job as in wire.Offer.
	row   int64
	locks []int64
}

// claimBatch contains the offers of one claim in three groups: jobs without a cluster limit, jobs
// with one that the claim counts, and jobs with one that the leader has counted. All were offered
// in the same term, and those with a limit under the same version of the limits.
type claimBatch struct {
	free             []int64
	limited, counted []bufferedOffer
	term             int64
	limitVersion     int64
}

func (c claimBatch) jobs() int { return len(c.free) + len(c.limited) + len(c.counted) }

// ownJob is a job of this process.
type ownJob struct {
	row       *rivertype.JobRow // as claimed; nil during the claim
	ended     bool              // the slot is free, but the result is not acknowledged
	cancelled bool              // a cancellation has arrived
}

// claimBuffer contains the unclaimed offers and the claimed jobs, and counts the slots.
// It has two invariants. First, the free slots in Credit, plus buffered offers, uncertain
// claims and active jobs, never exceed the number of slots. Second, a job in own is never
// claimed or looked up: this process has at most one attempt of a job, from the claim
// until the database has acknowledged or rejected the result.
type claimBuffer struct {
	// changed receives a signal when the credit may have changed. It has room for one
	// signal.
	changed chan struct{}
	// wanted receives a signal when there is an offer to claim. It has room for one
	// signal.
	wanted chan struct{}
	// urgent receives a signal when many slots have become free since the last report, so
	// the next report should not wait. It has room for one signal.
	urgent chan struct{}
	// room returns how many more jobs the node should take, besides the limit of its
	// slots; nil means no limit.
	room func() int

	mu           sync.Mutex
	slots        int
	queues       map[string]int
	reserve      map[string]int // slots that only jobs of the queue may use
	lastActivity time.Time      // time of the last arrival or end of a job or offer
	term         int64
	limitVersion int64 // of the offers of limited jobs
	seen         int64
	offers       map[string][]bufferedOffer
	uncertain    map[string][]uncertainClaim
	// paused contains the queues that are paused as far as this node knows. Their offers
	// wait. The claim checks the pause too, so a missed message does no harm.
	paused map[string]bool
	// own contains the jobs that are being claimed or looked up, that run, or that have
	// ended with an unacknowledged result.
	own             map[int64]ownJob
	uncertainUntil  time.Time      // until then, an unanswered claim may still be executed
	active          map[string]int // number of jobs that are being claimed or that run
	reportRequested bool           // send a report even if nothing has changed
	reported        int            // free slots in the last report
	roomLimited     bool           // room limited the last report
	draining        bool
}

func newClaimBuffer(slots int, queues, reserve map[string]int, room func() int) *claimBuffer {
	return &claimBuffer{
		room: room, slots: slots, queues: maps.Clone(queues), reserve: maps.Clone(reserve), lastActivity: time.Now(),
		changed: make(chan struct{}, 1), wanted: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		offers: map[string][]bufferedOffer{}, uncertain: map[string][]uncertainClaim{}, active: map[string]int{},
		own: map[int64]ownJob{}, paused: map[string]bool{},
	}
}

// add adds an offer. It returns how many jobs were dropped because their term is over or
// this node does not take them.
func (b *claimBuffer) add(offer wire.Offer, now time.Time) (dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if offer.Term < b.term {
		return jobsIn(offer)
	}
	if offer.Term > b.term {
		dropped = b.newTerm(offer.Term)
	}
	dropped += b.newLimitVersion(offer.LimitVersion)
	b.seen = max(b.seen, offer.Seq)
	defer signal(b.changed)
	if len(offer.Jobs) == 0 {
		b.reportRequested = true
		return dropped
	}
	if b.draining || offer.Limited && offer.LimitVersion < b.limitVersion {
		b.reportRequested = true
		return dropped + jobsIn(offer)
	}
	taken := false
	for _, queue := range slices.Sorted(maps.Keys(offer.Jobs)) {
		if b.queues[queue] == 0 {
			dropped += len(offer.Jobs[queue])
			continue
		}
		for i, id := range offer.Jobs[queue] {
			if job, ours := b.own[id]; ours && !job.ended {
				dropped++ // an ended job may be offered again; it is claimed once its result is acknowledged
			} else if at := slices.IndexFunc(b.offers[queue], func(j bufferedOffer) bool { return j.id == id }); at >= 0 {
				b.offers[queue][at] = newBufferedOffer(offer, queue, i, now)
			} else if !b.contains(queue, id) {
				b.offers[queue] = append(b.offers[queue], newBufferedOffer(offer, queue, i, now))
			}
		}
		taken = true
	}
	if taken {
		b.lastActivity = now
		signal(b.wanted)
	}
	return dropped
}

func newBufferedOffer(offer wire.Offer, queue string, i int, now time.Time) bufferedOffer {
	job := bufferedOffer{id: offer.Jobs[queue][i], at: now, limited: offer.Limited}
	if i < len(offer.Rows[queue]) {
		job.row = offer.Rows[queue][i]
	}
	if i < len(offer.Locks[queue]) {
		job.locks = offer.Locks[queue][i]
	}
	return job
}

// resize changes the number of slots and the reserved ones. Jobs beyond it continue to run.
func (b *claimBuffer) resize(slots int, queues, reserve map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots, b.queues, b.reserve = slots, maps.Clone(queues), maps.Clone(reserve)
	for queue := range b.offers {
		if b.queues[queue] == 0 {
			delete(b.offers, queue) // the leader offers these jobs elsewhere
		}
	}
	maps.DeleteFunc(b.uncertain, func(queue string, _ []uncertainClaim) bool { return b.queues[queue] == 0 })
	signal(b.changed)
}

// newTerm drops the offers of the previous term, because their claims would be rejected.
func (b *claimBuffer) newTerm(term int64) (dropped int) {
	dropped = count(b.offers)
	clear(b.offers)
	b.term, b.seen, b.limitVersion = term, 0, 0
	return dropped
}

// newLimitVersion drops the offers under another version of the limits if that of an offer is newer,
// because their claims would be rejected.
func (b *claimBuffer) newLimitVersion(version int64) (dropped int) {
	if version <= b.limitVersion {
		return 0
	}
	before := count(b.offers)
	for queue, offers := range b.offers {
		b.offers[queue] = slices.DeleteFunc(offers, func(j bufferedOffer) bool { return j.limited })
	}
	b.limitVersion = version
	return before - count(b.offers)
}

func (b *claimBuffer) contains(queue string, id int64) bool {
	return slices.ContainsFunc(b.offers[queue], func(j bufferedOffer) bool { return j.id == id }) ||
		slices.ContainsFunc(b.uncertain[queue], func(j uncertainClaim) bool { return j.id == id })
}

// take moves at most limit offered jobs of the queue to active, as far as the queue and
// the node have free slots. The caller must call claimed or markUncertain next.
func (b *claimBuffer) take(queue string, limit int) claimBatch {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := max(0, min(limit, b.slots-sum(b.active)-b.reservedFor(queue, b.active), b.queues[queue]-b.active[queue]))
	if b.draining || b.paused[queue] {
		n = 0
	}
	batch := claimBatch{term: b.term, limitVersion: b.limitVersion}
	b.offers[queue] = slices.DeleteFunc(b.offers[queue], func(job bufferedOffer) bool {
		if _, ours := b.own[job.id]; ours || n == 0 {
			return false
		}
		n--
		b.own[job.id] = ownJob{}
		b.active[queue]++
		switch {
		case len(job.locks) > 0:
			batch.counted = append(batch.counted, job)
		case job.limited:
			batch.limited = append(batch.limited, job)
		default:
			batch.free = append(batch.free, job.id)
		}
		return true
	})
	// Overlapping claims of two nodes then lock the rows in the same order.
	slices.Sort(batch.free)
	byID := func(x, y bufferedOffer) int { return cmp.Compare(x.id, y.id) }
	slices.SortFunc(batch.limited, byID)
	slices.SortFunc(batch.counted, byID)
	return batch
}

// claimed completes take or takeUncertain: the jobs now belong to this node, the other
// ids do not.
func (b *claimBuffer) claimed(queue string, ids []int64, jobs []*rivertype.JobRow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[queue] -= len(ids) - len(jobs)
	for _, job := range jobs {
		b.own[job.ID] = ownJob{row: job, cancelled: b.own[job.ID].cancelled}
	}
	for _, id := range ids {
		if b.own[id].row == nil {
			delete(b.own, id)
		}
	}
	signal(b.changed)
}

// cancel records that a job is cancelled, if it is being claimed or runs.
func (b *claimBuffer) cancel(id int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if job, ours := b.own[id]; ours && !job.ended {
		job.cancelled = true
		b.own[id] = job
	}
}

// isCancelled reports whether a cancellation of the job has arrived since its claim began.
func (b *claimBuffer) isCancelled(id int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.own[id].cancelled
}

// pause records that a queue, or each queue for "*", is paused or resumed.
func (b *claimBuffer) pause(queue string, paused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.queues {
		if name == queue || queue == allQueues {
			b.paused[name] = paused
		}
	}
	if !paused && b.waiting() {
		signal(b.wanted)
	}
}

// names returns the names of the queues, sorted.
func (b *claimBuffer) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.queues))
}

// capacity returns the number of slots.
func (b *claimBuffer) capacity() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slots
}

// tooManyEnded reports whether the results of so many jobs are not acknowledged that the node
// should claim no more.
func (b *claimBuffer) tooManyEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.own)-sum(b.active) > b.slots+maxPage
}

// await waits until there may be something to claim. It returns false if ctx has ended.
func (b *claimBuffer) await(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-b.wanted:
		return true
	}
}

// wake causes a claim if offers or uncertain claims are waiting.
func (b *claimBuffer) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting() {
		signal(b.wanted)
	}
}

// rows returns the rows of jobs as claimed. The row of an unknown job is nil.
func (b *claimBuffer) rows(ids []int64) []*rivertype.JobRow {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows := make([]*rivertype.JobRow, len(ids))
	for i, id := range ids {
		rows[i] = b.own[id].row
	}
	return rows
}

// acknowledged removes jobs whose results the database has acknowledged or rejected.
// Offers of these jobs may be claimed now.
func (b *claimBuffer) acknowledged(ids []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		delete(b.own, id)
	}
	b.lastActivity = time.Now()
	if b.waiting() {
		signal(b.wanted)
	}
}

// ownIDs returns the ids in own. The result is never nil, because nil is NULL in a
// statement.
func (b *claimBuffer) ownIDs() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.AppendSeq([]int64{}, maps.Keys(b.own))
}

// finish frees the slot of a job. A waiting offer may be claimed now.
func (b *claimBuffer) finish(queue string, id int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if job, ours := b.own[id]; ours { // otherwise the result is already acknowledged
		job.ended = true
		b.own[id] = job
		if failpoint.Off("jobs/unacknowledged") {
			delete(b.own, id)
		}
	}
	b.active[queue]--
	b.lastActivity = time.Now()
	signal(b.changed)
	if b.isUrgent() {
		signal(b.urgent)
	}
	if b.waiting() {
		signal(b.wanted)
	}
}

// expire drops offers that have waited too long. The others may be claimed. If an offer of
// a paused queue is dropped, the message that resumed the queue may be lost, so that the
// next claim asks the database.
func (b *claimBuffer) expire(now time.Time) (dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for queue, jobs := range b.offers {
		fresh := slices.DeleteFunc(jobs, func(j bufferedOffer) bool { return now.Sub(j.at) > offerTimeout })
		if len(fresh) < len(jobs) {
			dropped += len(jobs) - len(fresh)
			delete(b.paused, queue)
		}
		b.offers[queue] = fresh
	}
	if dropped > 0 {
		signal(b.changed)
	}
	if b.waiting() {
		signal(b.wanted)
	}
	return dropped
}

// drain stops taking jobs: from now on, the credit is zero.
func (b *claimBuffer) drain() (dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
	dropped = count(b.offers)
	clear(b.offers)
	signal(b.changed)
	return dropped
}

// lastProgress returns when the last job ended or the last result was acknowledged, and
// how many results are not acknowledged. The time is zero while a job is claimed or runs.
func (b *claimBuffer) lastProgress() (at time.Time, unacknowledged int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sum(b.active) > 0 {
		return time.Time{}, len(b.own)
	}
	return b.lastActivity, len(b.own)
}

func (b *claimBuffer) running() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return sum(b.active)
}

// waiting reports whether there are jobs to claim or to look up.
func (b *claimBuffer) waiting() bool {
	return count(b.offers)+count(b.uncertain) > 0
}

// hasOffers reports whether any offer or uncertain claim is waiting.
func (b *claimBuffer) hasOffers() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting()
}

// allQueues is how a control message names every queue.
const allQueues = "*"

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func jobsIn(offer wire.Offer) (n int) {
	for _, ids := range offer.Jobs {
		n += len(ids)
	}
	return n
}

func count[T any](lists map[string][]T) (n int) {
	for _, list := range lists {
		n += len(list)
	}
	return n
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
