package assign

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// reserveTimeout is how long Reserve waits for a running step to end. The jobs are late by
// that time if the step takes longer, and are then offered as all others.
const reserveTimeout = 2 * time.Millisecond

// Reservation contains the offers of jobs that are not committed yet. Until Release, but at
// most for the timeout of an offer, the Assigner sends no other offers, so the nodes get all
// offers in their order.
type Reservation struct {
	loop     *loop
	expiry   *time.Timer
	ended    sync.Once
	offers   []addressedOffer
	unplaced []string
}

// Reserve reserves places for jobs that a transaction of the term has inserted, as a step
// places them that finds them. The conditions were read in the transaction. Jobs of a queue
// are not placed if older jobs wait in it, or if there is not enough room for all of them.
// Jobs with a cluster limit are never placed. Reserve returns nil if no job is placed.
// Otherwise the caller sends the offers with Queue, commits, and calls Release.
func (a *Assigner) Reserve(ctx context.Context, term int64, jobs []jobstore.NewJob, conditions jobstore.OfferConditions) *Reservation {
	l := a.running.Load()
	if l == nil || l.fence.Term != term || !l.acquire(ctx, reserveTimeout) {
		return nil
	}
	r := &Reservation{loop: l}
	if !l.stopped {
		r.offers, r.unplaced = l.reserve(jobs, conditions, time.Now())
	}
	if len(r.offers) == 0 {
		l.release()
		return nil
	}
	r.expiry = time.AfterFunc(l.offerTimeout, r.end)
	return r
}

// Queue adds the offers to a batch, and the notifications of the queues with other jobs.
// The notifications are sent when the transaction commits.
func (r *Reservation) Queue(batch *pgx.Batch) {
	l := r.loop
	for _, o := range r.offers {
		l.notifier.Queue(batch, wire.OfferChannel(l.schema, o.to.incarnation), wire.Marshal(o.offer))
	}
	jobstore.BatchNotifyAvailable(batch, r.unplaced)
}

// Release lets the Assigner continue. If the transaction is not committed, the offers expire as
// lost ones do.
func (r *Reservation) Release(committed bool) {
	r.expiry.Stop()
	if committed {
		r.count()
	}
	r.end()
}

func (r *Reservation) end() {
	r.ended.Do(func() {
		l := r.loop
		l.lastNews, l.followUp, l.reserved = time.Now(), 1, true
		l.release()
		l.below.interrupt()
	})
}

func (r *Reservation) count() {
	for _, addressed := range r.offers {
		for _, ids := range addressed.offer.Jobs {
			r.loop.metrics.AssignmentOffers.Add(float64(len(ids)))
		}
	}
}

// acquire takes the loop's turn, unless that takes longer than timeout.
func (l *loop) acquire(ctx context.Context, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case l.turn <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (l *loop) release() { <-l.turn }

// reserve places jobs and numbers their offers. unplaced are the queues with other jobs.
func (l *loop) reserve(inserted []jobstore.NewJob, conditions jobstore.OfferConditions, now time.Time) (offers []addressedOffer, unplaced []string) {
	current := l.steps > 0 && !l.nodesAt.IsZero() && l.nodes.inForce.appliedAt.Equal(conditions.AppliedAt)
	open := map[string]bool{}
	for queue, jobs := range countByQueue(inserted) {
		open[queue] = current && !conditions.Paused[queue] && l.isEmpty(queue, now) && l.nodes.room(queue) >= jobs
	}
	assigned := map[*member]jobsByQueue{}
	for _, n := range inserted {
		j := newJob(n)
		if !open[j.queue] || !l.reserveOne(j, now, assigned) {
			unplaced = append(unplaced, j.queue)
		}
	}
	return l.nodes.addressOffers(assigned, l.limits, nil, now), unplaced
}

// isEmpty reports whether no job waits in a queue, as far as the last scan has seen.
func (l *loop) isEmpty(queue string, now time.Time) bool {
	q := l.queueScans[queue]
	return q != nil && !q.hasBacklog() && q.waiting+q.counting == 0 && !q.heldUntil.After(now)
}

func (l *loop) reserveOne(j job, now time.Time, assigned map[*member]jobsByQueue) bool {
	if l.limits.isLimited(j) {
		return false
	}
	m, _, _ := pick(j, l.nodes.members, l.nodes.strategy, "", l.limits.fullOn)
	if m == nil {
		return false
	}
	l.give(m, j, now, assigned)
	return true
}

func newJob(n jobstore.NewJob) job {
	j := job{position: position{id: n.ID}, kind: n.Kind, queue: n.Queue}
	j.capability, _ = n.Metadata[jobstore.KeyCapability].(string)
	j.tags, _ = n.Metadata[jobstore.KeyTags].(map[string]string)
	return j
}

func countByQueue(inserted []jobstore.NewJob) map[string]int {
	counts := map[string]int{}
	for _, n := range inserted {
		counts[n.Queue]++
	}
	return counts
}
