package pilot

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/wire"
)

// heldFor is how long an offer may wait for its claim before it is dropped; the
// leader offers the job again, here or elsewhere. Offers wait when their queue
// is paused or when the node is fuller than the leader knew.
const heldFor = 5 * time.Second

// unsureFor is how long after a claim without an answer the node looks for what it
// holds without knowing: the server may carry a request out long after its sender has
// given it up, as a frozen one does when it wakes.
const unsureFor = 10 * time.Minute

type heldJob struct {
	id      int64
	at      time.Time
	limited bool
}

// doubtfulJob is a job whose claim may or may not have happened.
type doubtfulJob struct {
	id  int64
	due time.Time // of the next look
}

// taken are the ids of one claim: those that a limit of the cluster is on, and
// the others. All are the term's.
type taken struct {
	free, limited []int64
	term          int64
}

// mineJob is a job of this process.
type mineJob struct {
	row   *rivertype.JobRow // as claimed; nil while that is under way
	ended bool              // its slot is free, its result not acknowledged
}

// box keeps the offers that were not claimed yet, the jobs that were, and counts the
// slots. Its invariants: what Credit reports as free, plus what is held, doubtful and
// active, is never more than the slots there are. And no job is claimed or looked up
// that is among mine: of a job there is at most one attempt in this process, from the
// claim until the database has acknowledged or refused its result.
type box struct {
	// changed has room for one signal: the credit may differ from the last one.
	changed chan struct{}
	// wanted likewise: there is something to claim.
	wanted chan struct{}
	// pressing likewise: much came free since the last report, which should not
	// wait for more.
	pressing chan struct{}
	// room is how many more jobs the node should take, beside its slots; nil: no
	// bound.
	room func() int

	mu       sync.Mutex
	slots    int
	queues   map[string]int
	touched  time.Time // when anything last came or went
	term     int64
	seen     int64
	held     map[string][]heldJob
	doubtful map[string][]doubtfulJob
	// mine has the jobs that are being claimed or looked up, that run, or that have
	// ended with a result that is not acknowledged yet.
	mine     map[int64]mineJob
	unsure   time.Time      // until then a claim that was given up may still take effect
	active   map[string]int // being claimed or running
	asked    bool           // a report is due even if nothing changed
	reported int            // free slots of the last report
	cramped  bool           // by room, in the last report
	draining bool
}

func newBox(slots int, queues map[string]int, room func() int) *box {
	return &box{
		room: room, slots: slots, queues: maps.Clone(queues), touched: time.Now(),
		changed: make(chan struct{}, 1), wanted: make(chan struct{}, 1), pressing: make(chan struct{}, 1),
		held: map[string][]heldJob{}, doubtful: map[string][]doubtfulJob{}, active: map[string]int{},
		mine: map[int64]mineJob{},
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
			if job, ours := b.mine[id]; ours && !job.ended {
				dropped++ // one that has ended may be due again, once its result is acknowledged
			} else if !b.knows(queue, id) {
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
		slices.ContainsFunc(b.doubtful[queue], func(j doubtfulJob) bool { return j.id == id })
}

// take moves at most limit held jobs of the queue, and no more than it and the
// node have slots free, to active. Claimed or doubt must follow.
func (b *box) take(queue string, limit int) taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := max(0, min(limit, b.slots-sum(b.active), b.queues[queue]-b.active[queue]))
	if b.draining {
		n = 0
	}
	took := taken{term: b.term}
	b.held[queue] = slices.DeleteFunc(b.held[queue], func(job heldJob) bool {
		if _, ours := b.mine[job.id]; ours || n == 0 {
			return false
		}
		n--
		b.mine[job.id] = mineJob{}
		b.active[queue]++
		if job.limited {
			took.limited = append(took.limited, job.id)
		} else {
			took.free = append(took.free, job.id)
		}
		return true
	})
	// Claims of two nodes that overlap lock rows in one order.
	slices.Sort(took.free)
	slices.Sort(took.limited)
	return took
}

// claimed settles a take or a look: jobs are this node's now, the other ids are not.
func (b *box) claimed(queue string, ids []int64, jobs []*rivertype.JobRow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[queue] -= len(ids) - len(jobs)
	for _, id := range ids {
		delete(b.mine, id)
	}
	for _, job := range jobs {
		b.mine[job.ID] = mineJob{row: job}
	}
	signal(b.changed)
}

// doubt keeps ids whose claim may or may not have happened, to be looked up from due on.
func (b *box) doubt(queue string, ids []int64, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[queue] -= len(ids)
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		delete(b.mine, id)
		b.doubtful[queue] = append(b.doubtful[queue], doubtfulJob{id: id, due: due})
	}
	b.unsure = time.Now().Add(unsureFor)
	signal(b.changed)
}

// suspect has a job looked up that the database has as this node's, unless it is known.
func (b *box) suspect(queue string, id int64) (added bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ours := b.mine[id]; ours || b.knows(queue, id) || b.queues[queue] == 0 {
		return false
	}
	b.doubtful[queue] = append(b.doubtful[queue], doubtfulJob{id: id})
	signal(b.wanted)
	return true
}

// isUnsure says whether a claim that was given up may still take effect.
func (b *box) isUnsure() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.unsure)
}

// takeDoubtful moves at most limit doubtful jobs that are due to active, to be looked up.
func (b *box) takeDoubtful(queue string, limit int, now time.Time) (ids []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubtful[queue] = slices.DeleteFunc(b.doubtful[queue], func(j doubtfulJob) bool {
		if _, ours := b.mine[j.id]; ours {
			return true
		}
		if len(ids) >= limit || j.due.After(now) {
			return false
		}
		ids = append(ids, j.id)
		b.mine[j.id] = mineJob{}
		return true
	})
	b.active[queue] += len(ids)
	return ids
}

// rows returns the rows of jobs as they were claimed, nil for one that is unknown.
func (b *box) rows(ids []int64) []*rivertype.JobRow {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows := make([]*rivertype.JobRow, len(ids))
	for i, id := range ids {
		rows[i] = b.mine[id].row
	}
	return rows
}

// acknowledged forgets jobs whose results the database has, or has refused. It returns
// the queues that hold an offer of one of them.
func (b *box) acknowledged(ids []int64) (wake []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		delete(b.mine, id)
	}
	b.touched = time.Now()
	for queue := range b.held {
		if slices.ContainsFunc(ids, func(id int64) bool { return b.knows(queue, id) }) {
			wake = append(wake, queue)
		}
	}
	return wake
}

// ours lists the jobs that are among mine; never nil, which would be NULL in a statement.
func (b *box) ours() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.AppendSeq([]int64{}, maps.Keys(b.mine))
}

// finish gives a job's slot back and returns the queues that wait for one.
func (b *box) finish(queue string, id int64) (wake []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if job, ours := b.mine[id]; ours { // or its result is acknowledged already
		job.ended = true
		b.mine[id] = job
	}
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
	b.cramped = false
	if b.room != nil {
		if room := max(0, b.room()-count(b.held)); room < credit.Slots {
			credit.Slots, b.cramped = room, true
		}
	}
	for queue, most := range b.queues {
		used := b.active[queue] + len(b.held[queue]) + len(b.doubtful[queue])
		credit.Free[queue] = max(0, min(most-used, credit.Slots))
	}
	return credit, asked
}

// moreRoom asks for a report if the last one was bounded by room.
func (b *box) moreRoom() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cramped {
		signal(b.changed)
	}
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

// idleSince is when the last job or offer went, zero while there are any, or results
// that are not acknowledged: River's client writes them only while it runs.
func (b *box) idleSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sum(b.active) > 0 || len(b.waiting()) > 0 || len(b.mine) > 0 {
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
