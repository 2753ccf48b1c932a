package riveradapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// statementGap is the minimum time between the starts of two statements of a loop. It
	// limits the statements during a burst, and adds up to this latency.
	statementGap = 2 * time.Millisecond
	// maxPage is the maximum number of jobs that are claimed at once.
	maxPage = 2000
	// maxAttemptedBy is how many clients a row lists. It equals River's.
	maxAttemptedBy = 100
)

// Work claims offered jobs and writes the results of forge's executor until ctx ends. Claims
// and results have a loop each, so that neither waits for rows or replies of the other.
// Results whose write has failed are written again in a third loop, until the database has
// acknowledged or rejected them.
func (p *Pilot) Work(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loops.Go(func() { p.repeat(ctx, p.pending.await, p.writeEnded) })
	loops.Go(func() { p.rewriteResults(ctx) })
	p.repeat(ctx, p.buffer.await, p.claimOffered)
}

// repeat does something each time await returns, until ctx ends.
func (p *Pilot) repeat(ctx context.Context, await func(context.Context) bool, do func(context.Context) error) {
	for failing := false; await(ctx); {
		began := time.Now()
		err := p.bounded(ctx, do)
		if err != nil && !failing && ctx.Err() == nil {
			p.logger.WarnContext(ctx, "claiming jobs or writing results failed; retrying", "error", err)
		}
		failing = err != nil
		watchdog.Sleep(ctx, time.Until(began.Add(statementGap)))
	}
}

func (p *Pilot) bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.claimTimeout)
	defer cancel()
	return do(ctx)
}

// claimOffered claims the buffered offers and looks up uncertain claims. While the database
// does not take the results, the node claims no more jobs. It sends no statement if there is
// nothing to claim.
func (p *Pilot) claimOffered(ctx context.Context) error {
	if p.pending.unwritten() > p.buffer.capacity() || p.buffer.tooManyEnded() {
		return nil
	}
	lookedUp := p.resolveUncertain(ctx)
	claims := p.takeOffers()
	return errors.Join(lookedUp, p.claimUnlimited(ctx, claims), p.claimCounted(ctx, claims), p.claimLimited(ctx, claims))
}

// queueClaim is a claim of offered jobs of one queue.
type queueClaim struct {
	queue string
	claimBatch
}

func (c queueClaim) offer(ids []int64) jobstore.Offer {
	return jobstore.Offer{Queue: c.queue, IDs: ids, Term: c.term, MaxAttemptedBy: maxAttemptedBy, LimitVersion: c.limitVersion}
}

func (c queueClaim) limitedOffer(jobs []bufferedOffer) jobstore.Offer {
	offer := c.offer(make([]int64, 0, len(jobs)))
	for _, job := range jobs {
		offer.IDs, offer.Locks = append(offer.IDs, job.id), append(offer.Locks, job.locks)
		if c.limitVersion > 0 {
			offer.Rows = append(offer.Rows, job.row)
		}
	}
	return offer
}

// takeOffers takes the offers that can be claimed now. The queues are in order, so that
// overlapping claims of two nodes lock the rows in the same order.
func (p *Pilot) takeOffers() (claims []queueClaim) {
	room := maxPage
	for _, queue := range p.buffer.names() {
		batch := p.buffer.take(queue, room)
		n := batch.jobs()
		if n > 0 {
			claims = append(claims, queueClaim{queue, batch})
		}
		room -= n
	}
	if room == 0 {
		p.buffer.wake()
	}
	return claims
}

// claimUnlimited claims the jobs without a limit.
func (p *Pilot) claimUnlimited(ctx context.Context, claims []queueClaim) error {
	var offers []jobstore.Offer
	for _, claim := range claims {
		if len(claim.free) > 0 {
			offers = append(offers, claim.offer(claim.free))
		}
	}
	if err := p.claimOffers(ctx, offers, p.store.ClaimOffers, p.store.ClaimUnlocked); err != nil {
		return fmt.Errorf("claim jobs: %w", err)
	}
	return nil
}

// claimCounted claims the jobs with a limit that the leader has counted.
func (p *Pilot) claimCounted(ctx context.Context, claims []queueClaim) error {
	var offers []jobstore.Offer
	for _, claim := range claims {
		for jobs := range slices.Chunk(claim.counted, jobstore.MaxCountedClaim) {
			offers = append(offers, claim.limitedOffer(jobs))
		}
	}
	if err := p.claimOffers(ctx, offers, p.store.ClaimCounted, p.store.ClaimCountedUnlocked); err != nil {
		return fmt.Errorf("claim counted jobs: %w", err)
	}
	return nil
}

// claimFunc is a method of jobstore.Client that claims several offers in one transaction.
type claimFunc func(ctx context.Context, offers []jobstore.Offer, claimed func(offer int, row *jobstore.Row) error) error

// claimOffers claims offers in one transaction. If another transaction has locked one of the rows, it
// leaves the locked ones.
func (p *Pilot) claimOffers(ctx context.Context, offers []jobstore.Offer, claim, unlocked claimFunc) error {
	if len(offers) == 0 {
		return nil
	}
	var rows slab
	got := make([][]Claimed, len(offers))
	take := func(offer int, row *jobstore.Row) error {
		got[offer] = append(got[offer], rows.decode(row))
		return nil
	}
	err := claim(ctx, offers, take)
	if jobstore.IsLocked(err) {
		clear(got)
		err = unlocked(ctx, offers, take)
	}
	undone := rolledBack(err)
	for i, offer := range offers {
		if undone {
			p.settle(offer.Queue, offer.IDs, nil, nil) // the leader offers the jobs again
		} else {
			p.settle(offer.Queue, offer.IDs, got[i], err)
		}
	}
	return err
}

// rolledBack reports whether the server has rejected a statement. Then it has changed nothing.
func rolledBack(err error) bool {
	rejected, ok := errors.AsType[*pgconn.PgError](err)
	return ok && rejected.Severity == "ERROR"
}

// claimLimited claims the jobs with a limit, in transactions of one queue each.
func (p *Pilot) claimLimited(ctx context.Context, claims []queueClaim) error {
	var failed error
	for _, claim := range claims {
		for jobs := range slices.Chunk(claim.limited, jobstore.MaxLimitedClaim) {
			offer := claim.limitedOffer(jobs)
			got, err := p.claimLimitedOffer(ctx, offer)
			p.settle(claim.queue, offer.IDs, got, err)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("claim jobs with a limit: %w", err))
			}
		}
	}
	return failed
}

func (p *Pilot) claimLimitedOffer(ctx context.Context, offer jobstore.Offer) (got []Claimed, err error) {
	var rows slab
	take := func(row *jobstore.Row) error {
		got = append(got, rows.decode(row))
		return nil
	}
	locked, err := p.store.ClaimLimited(ctx, offer, take)
	if locked {
		got = nil
		err = p.store.ClaimLimitedUnlocked(ctx, offer, take)
	}
	return got, err
}

// resolveUncertain finds which unanswered claims were executed. Undecided ones stay
// uncertain.
func (p *Pilot) resolveUncertain(ctx context.Context) error {
	for _, queue := range p.buffer.names() {
		ids := p.buffer.takeUncertain(queue, maxPage, time.Now())
		if len(ids) == 0 {
			continue
		}
		claimed, undecided, err := p.adopt(ctx, ids)
		if err != nil {
			p.buffer.markUncertain(queue, ids, time.Time{})
			return fmt.Errorf("look up unanswered claims: %w", err)
		}
		p.buffer.markUncertain(queue, undecided, time.Now().Add(lookPause))
		decided := slices.DeleteFunc(ids, func(id int64) bool { return slices.Contains(undecided, id) })
		p.settle(queue, decided, claimed, nil)
	}
	return nil
}

// settle records the outcome of a claim in the buffer, and starts the claimed jobs.
func (p *Pilot) settle(queue string, ids []int64, claimed []Claimed, err error) {
	if err != nil {
		p.buffer.markUncertain(queue, ids, time.Time{})
		return
	}
	rows := make([]*rivertype.JobRow, len(claimed))
	for i := range claimed {
		rows[i] = claimed[i].Job
	}
	p.buffer.claimed(queue, ids, rows)
	p.claims.Add(float64(len(claimed)))
	p.refused.Add(float64(len(ids) - len(claimed)))
	if len(claimed) == 0 {
		return
	}
	rivers := slices.DeleteFunc(p.start(claimed), p.announced.hold)
	if len(rivers) > 0 {
		p.handOver(queue, rivers)
	}
}
