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
	id int64
	at time.Time
}

// box keeps the offers that were not claimed yet and counts the slots. Its
// invariant: what Credit reports as free, plus what is held, doubtful and
// active, is never more than the slots there are.
type box struct {
	slots  int
	queues map[string]int
	// changed has room for one signal: the credit may differ from the last one.
	changed chan struct{}

	mu       sync.Mutex
	term     int64
	seen     int64
	held     map[string][]heldJob
	doubtful map[string][]int64 // the claim's outcome is unknown
	active   map[string]int     // being claimed or running
	asked    bool               // a report is due even if nothing changed
	draining bool
}

func newBox(slots int, queues map[string]int) *box {
	return &box{
		slots: slots, queues: maps.Clone(queues), changed: make(chan struct{}, 1),
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
	defer b.signal()
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
				b.held[queue] = append(b.held[queue], heldJob{id: id, at: now})
			}
		}
		wake = append(wake, queue)
	}
	return wake, dropped
}

// newTerm forgets what the older term offered: the claim would be refused.
func (b *box) newTerm(term int64) (dropped int) {
	for _, jobs := range b.held {
		dropped += len(jobs)
	}
	clear(b.held)
	b.term, b.seen = term, 0
	return dropped
}

func (b *box) knows(queue string, id int64) bool {
	return slices.ContainsFunc(b.held[queue], func(j heldJob) bool { return j.id == id }) ||
		slices.Contains(b.doubtful[queue], id)
}

// take moves at most limit held jobs of the queue, and no more than the node
// has slots free, to active. Claimed or doubt must follow.
func (b *box) take(queue string, limit int) (ids []int64, term int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := max(0, min(limit, len(b.held[queue]), b.slots-sum(b.active)))
	if b.draining {
		n = 0
	}
	for _, job := range b.held[queue][:n] {
		ids = append(ids, job.id)
	}
	b.held[queue] = b.held[queue][n:]
	b.active[queue] += n
	slices.Sort(ids) // claims of two nodes that overlap lock rows in one order
	return ids, b.term
}

// claimed settles a take: got of the taken jobs are this node's now.
func (b *box) claimed(queue string, taken, got int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[queue] -= taken - got
	b.signal()
}

// doubt keeps ids whose claim may or may not have happened.
func (b *box) doubt(queue string, ids []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[queue] -= len(ids)
	b.doubtful[queue] = append(b.doubtful[queue], ids...)
	b.signal()
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
	b.signal()
	return b.waiting()
}

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
		b.signal()
	}
	return b.waiting(), dropped
}

// drain ends the taking of work: from now on the credit is zero.
func (b *box) drain() (dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
	for _, jobs := range b.held {
		dropped += len(jobs)
	}
	clear(b.held)
	b.signal()
	return dropped
}

// ask makes the next report go out even if nothing changed.
func (b *box) ask() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = true
	b.signal()
}

// credit is what this node could still take, and whether somebody asked.
func (b *box) credit() (credit wire.Credit, asked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked, b.asked = b.asked, false
	credit = wire.Credit{Term: b.term, Seen: b.seen, Free: make(map[string]int, len(b.queues))}
	free := b.slots - sum(b.active)
	for queue := range b.queues {
		free -= len(b.held[queue]) + len(b.doubtful[queue])
	}
	if !b.draining {
		credit.Slots = max(0, free)
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
	for queue := range b.queues {
		if len(b.held[queue])+len(b.doubtful[queue]) > 0 {
			queues = append(queues, queue)
		}
	}
	return queues
}

func (b *box) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func jobsIn(offer wire.Offer) (n int) {
	for _, ids := range offer.Jobs {
		n += len(ids)
	}
	return n
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
