package pilot

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/wire"
)

// heldFor is how long an offer may wait for its claim before it is dropped; the
// leader offers the job again, here or elsewhere. Offers wait when their queue
// is paused or when the node is fuller than the leader knew.
const heldFor = 5 * time.Second

type heldJob struct {
	id      int64
	at      time.Time
	limited bool
}

// taken are the ids of one claim: those that a limit of the cluster is on, and
// the others. All are the term's.
type taken struct {
	free, limited []int64
	term          int64
}

// box keeps the offers that were not claimed yet and counts the slots. Its
// invariant: what Credit reports as free, plus what is held, doubtful and
// active, is never more than the slots there are.
type box struct {
	// changed has room for one signal: the credit may differ from the last one.
	changed chan struct{}
	// wanted likewise: there is something to claim.
	wanted chan struct{}
	// pressing likewise: much came free since the last report, which should not
	// wait for more.
	pressing chan struct{}

	mu       sync.Mutex
	slots    int
	queues   map[string]int
	touched  time.Time // when anything last came or went
	term     int64
	seen     int64
	held     map[string][]heldJob
	doubtful map[string][]int64 // the claim's outcome is unknown
	active   map[string]int     // being claimed or running
	asked    bool               // a report is due even if nothing changed
	reported int                // free slots of the last report
	draining bool
}

func newBox(slots int, queues map[string]int) *box {
	return &box{
		slots: slots, queues: maps.Clone(queues), touched: time.Now(),
		changed: make(chan struct{}, 1), wanted: make(chan struct{}, 1), pressing: make(chan struct{}, 1),
		held: map[string][]heldJob{}, doubtful: map[string][]int64{}, active: map[string]int{},
	}
}

// put takes an offer in. It returns the queues whose producer should look, and
// how many jobs were dropped because their term or this process is at its end.
func (b *box) put(offer wire.Offer, now time.Time) (wake []string, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if offer.Term < b.term {
		return nil, jobsIn(offer)
	}
	if offer.Term > b.term {
		dropped = b.newTerm(offer.Term)
	}
	b.seen = max(b.seen, offer.Seq)
	defer signal(b.changed)
	if len(offer.Jobs) == 0 {
		b.asked = true
		return nil, dropped
	}
	if b.draining {
		b.asked = true
		return nil, dropped + jobsIn(offer)
	}
	for _, queue := range slices.Sorted(maps.Keys(offer.Jobs)) {
		if b.queues[queue] == 0 {
			dropped += len(offer.Jobs[queue])
			continue
		}
		for _, id := range offer.Jobs[queue] {
			if !b.knows(queue, id) {
				b.held[queue] = append(b.held[queue], heldJob{id: id, at: now, limited: offer.Limited})
			}
		}
		wake = append(wake, queue)
	}
	if len(wake) > 0 {
		b.touched = now
		signal(b.wanted)
	}
	return wake, dropped
}

// resize changes the slots. What is beyond them stays until it ends.
func (b *box) resize(slots int, queues map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots, b.queues = slots, maps.Clone(queues)
	for queue := range b.held {
		if b.queues[queue] == 0 {
			delete(b.held, queue) // the leader offers them elsewhere
		}
	}
	signal(b.changed)
}

// newTerm forgets what the older term offered: the claim would be refused.
func (b *box) newTerm(term int64) (dropped int) {
	dropped = count(b.held)
	clear(b.held)
	b.term, b.seen = term, 0
	return dropped
}

func (b *box) knows(queue string, id int64) bool {
	return slices.ContainsFunc(b.held[queue], func(j heldJob) bool { return j.id == id }) ||
		slices.Contains(b.doubtful[queue], id)
}

// take moves at most limit held jobs of the queue, and no more than it and the
// node have slots free, to active. Claimed or doubt must follow.
func (b *box) take(queue string, limit int) taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := max(0, min(limit, len(b.held[queue]), b.slots-sum(b.active), b.queues[queue]-b.active[queue]))
	if b.draining {
		n = 0
	}
	took := taken{term: b.term}
	for _, job := range b.held[queue][:n] {
		if job.limited {
			took.limited = append(took.limited, job.id)
		} else {
			took.free = append(took.free, job.id)
		}
	}
	b.held[queue] = b.held[queue][n:]
	b.active[queue] += n
	// Claims of two nodes that overlap lock rows in one order.
	slices.Sort(took.free)
	slices.Sort(took.limited)
	return took
}

// claimed settles a take: got of the taken jobs are this node's now.
func (b *box) claimed(queue string, taken, got int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[queue] -= taken - got
	signal(b.changed)
}

// doubt keeps ids whose claim may or may not have happened.
func (b *box) doubt(queue string, ids []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[queue] -= len(ids)
	b.doubtful[queue] = append(b.doubtful[queue], ids...)
	signal(b.changed)
}

// takeDoubtful moves at most limit doubtful jobs to active, to be looked up.
func (b *box) takeDoubtful(queue string, limit int) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(limit, len(b.doubtful[queue]))
	ids := slices.Clone(b.doubtful[queue][:n])
	b.doubtful[queue] = b.doubtful[queue][n:]
	b.active[queue] += n
	return ids
}

// finish gives a slot back and returns the queues that wait for one.
func (b *box) finish(queue string) (wake []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[queue]--
	b.touched = time.Now()
	signal(b.changed)
	if b.isPressing() {
		signal(b.pressing)
	}
	return b.waiting()
}

// isPressing says whether the leader should know at once: a quarter of the slots
// came free since the last report, or nothing is left to do.
func (b *box) isPressing() bool {
	free := b.free()
	return free >= b.reported+max(1, b.slots/4) || free == b.slots
}

// free is how many slots nothing runs in or is meant for.
func (b *box) free() int { return b.slots - sum(b.active) - count(b.held) - count(b.doubtful) }

// expire drops offers that were held for too long, and returns the queues that
// still wait.
func (b *box) expire(now time.Time) (wake []string, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for queue, jobs := range b.held {
		fresh := slices.DeleteFunc(jobs, func(j heldJob) bool { return now.Sub(j.at) > heldFor })
		dropped += len(jobs) - len(fresh)
		b.held[queue] = fresh
	}
	if dropped > 0 {
		signal(b.changed)
	}
	return b.waiting(), dropped
}

// drain ends the taking of work: from now on the credit is zero.
func (b *box) drain() (dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
	dropped = count(b.held)
	clear(b.held)
	signal(b.changed)
	return dropped
}

// ask makes the next report go out even if nothing changed.
func (b *box) ask() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = true
	signal(b.changed)
}

// credit is what this node could still take, and whether somebody asked.
func (b *box) credit() (credit wire.Credit, asked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked, b.asked = b.asked, false
	credit = wire.Credit{Term: b.term, Seen: b.seen, Free: make(map[string]int, len(b.queues))}
	b.reported = b.free()
	select {
	case <-b.pressing: // told by this report
	default:
	}
	if !b.draining {
		credit.Slots = max(0, b.reported)
	}
	for queue, most := range b.queues {
		used := b.active[queue] + len(b.held[queue]) + len(b.doubtful[queue])
		credit.Free[queue] = max(0, min(most-used, credit.Slots))
	}
	return credit, asked
}

func (b *box) running() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return sum(b.active)
}

// waiting lists the queues that hold something to claim or to look up.
func (b *box) waiting() []string {
	var queues []string
	for queue, jobs := range b.held {
		if len(jobs) > 0 {
			queues = append(queues, queue)
		}
	}
	for queue, ids := range b.doubtful {
		if len(ids) > 0 && len(b.held[queue]) == 0 {
			queues = append(queues, queue)
		}
	}
	return queues
}

// holds says whether any offer waits for its claim.
func (b *box) holds() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting()) > 0
}

// idleSince is when the last job or offer went, zero while there are any.
func (b *box) idleSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sum(b.active) > 0 || len(b.waiting()) > 0 {
		return time.Time{}
	}
	return b.touched
}

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
