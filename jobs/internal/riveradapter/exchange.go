package riveradapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// exchangeGap is the minimum time between the starts of two exchanges. It limits the
	// statements during a burst, and adds up to this latency.
	exchangeGap = 2 * time.Millisecond
	// resultDelay is how long a result waits for more results, or for a claim that is
	// sent with it.
	resultDelay = 5 * time.Millisecond
	// maxPage is the maximum number of jobs that one exchange claims.
	maxPage = 2000
	// maxAttemptedBy is how many clients a row lists. It equals River's.
	maxAttemptedBy = 100
	// retryPage is how many results whose write has failed are written at once. A row that
	// cannot be written, for example because it is locked, delays only its page.
	retryPage = 100
)

// Ended records how an attempt on forge's executor ended, and frees its slot. The result
// is written soon.
func (p *Pilot) Ended(result Result) {
	p.pending.add(result)
	p.buffer.finish(result.Job.Queue, result.Job.ID)
}

// Work claims offered jobs and writes the results of forge's executor until ctx ends.
// Each exchange with the database is one round trip and one transaction for both. Results
// whose exchange has failed are written again, apart from it, until the database has
// acknowledged or rejected them.
func (p *Pilot) Work(ctx context.Context) {
	var rewriting sync.WaitGroup
	defer rewriting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rewriting.Go(func() { p.rewriteResults(ctx) })
	failing := false
	for p.awaitExchange(ctx) {
		began := time.Now()
		err := p.exchange(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			p.logger.WarnContext(ctx, "claiming jobs and writing results failed; retrying", "error", err)
		}
		failing = err != nil
		watchdog.Sleep(ctx, time.Until(began.Add(exchangeGap)))
	}
}

// awaitExchange waits until there is something to claim or to write. It returns false if
// ctx has ended.
func (p *Pilot) awaitExchange(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.buffer.wanted:
		return true
	case <-p.pending.many:
		return true
	case <-p.pending.some:
	}
	timer := time.NewTimer(resultDelay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-p.buffer.wanted:
	case <-p.pending.many:
	case <-timer.C:
	}
	return true
}

// exchange claims the buffered offers, looks up uncertain claims, and writes results. It
// sends no statement if there are none.
func (p *Pilot) exchange(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.claimTimeout)
	defer cancel()
	results := p.pending.take()
	var claims []queueClaim
	var lookedUp error
	if p.pending.unwritten() <= p.buffer.capacity() {
		lookedUp = p.resolveUncertain(ctx)
		claims = p.takeOffers()
	}
	return errors.Join(lookedUp, p.send(ctx, results, claims), p.claimLimited(ctx, claims))
}

// queueClaim is a claim of offered jobs of one queue.
type queueClaim struct {
	queue string
	claimBatch
}

func (c queueClaim) offer(ids []int64) jobstore.Offer {
	return jobstore.Offer{Queue: c.queue, IDs: ids, Term: c.term, MaxAttemptedBy: maxAttemptedBy}
}

// takeOffers takes the offers that can be claimed now. The queues are in order, so that
// overlapping claims of two nodes lock the rows in the same order.
func (p *Pilot) takeOffers() (claims []queueClaim) {
	room := maxPage
	for _, queue := range p.buffer.names() {
		batch := p.buffer.take(queue, room)
		n := len(batch.free) + len(batch.limited)
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

// send writes results and claims jobs without a limit.
func (p *Pilot) send(ctx context.Context, results []Result, claims []queueClaim) error {
	claims = slices.DeleteFunc(slices.Clone(claims), func(c queueClaim) bool { return len(c.free) == 0 })
	if len(results)+len(claims) == 0 {
		return nil
	}
	if len(results) > 0 {
		failpoint.Hit("jobs/before-complete")
	}
	message, plain, others := p.message(results, claims)
	var rows slab
	got := make([][]Claimed, len(claims))
	done, err := p.store.Exchange(ctx, p.pool, message, func(offer int, row *jobstore.Row) error {
		got[offer] = append(got[offer], rows.decode(row))
		return nil
	})
	undone := rolledBack(err)
	for i, claim := range claims {
		if undone {
			p.settle(claim.queue, claim.free, nil, nil) // the leader offers the jobs again
		} else {
			p.settle(claim.queue, claim.free, got[i], err)
		}
	}
	if err != nil {
		p.pending.retry(results)
		return fmt.Errorf("exchange results and claims: %w", err)
	}
	p.acknowledge(ctx, others, done.Rows)
	return p.acknowledgePlain(ctx, plain, done.Completed)
}

// rolledBack reports whether the server has rejected an exchange, for example because of one
// of its results. Then it has claimed nothing.
func rolledBack(err error) bool {
	rejected, ok := errors.AsType[*pgconn.PgError](err)
	return ok && rejected.Severity == "ERROR"
}

// message returns what is sent, and the results in two groups.
func (p *Pilot) message(results []Result, claims []queueClaim) (message *jobstore.Exchange, plain, others []Result) {
	message = &jobstore.Exchange{}
	plain = make([]Result, 0, len(results))
	for _, result := range results {
		if result.Params == nil {
			plain = append(plain, result)
		} else {
			others = append(others, result)
		}
	}
	slices.SortFunc(plain, func(a, b Result) int { return cmp.Compare(a.Job.ID, b.Job.ID) })
	if len(plain) > 0 {
		message.Done = successes(plain)
	}
	if len(others) > 0 {
		all := p.results(paramsOf(others))
		message.Others = &all
	}
	for _, claim := range claims {
		message.Offers = append(message.Offers, claim.offer(claim.free))
	}
	return message, plain, others
}

func successes(plain []Result) jobstore.Successes {
	s := jobstore.Successes{
		IDs: make([]int64, len(plain)), Ends: make([]*time.Time, len(plain)), ClaimedAts: make([]*time.Time, len(plain)),
	}
	for i := range plain {
		s.IDs[i], s.Ends[i], s.ClaimedAts[i] = plain[i].Job.ID, &plain[i].End, plain[i].Job.AttemptedAt
	}
	return s
}

// acknowledge removes results whose current rows the database has returned.
func (p *Pilot) acknowledge(ctx context.Context, results []Result, rows []jobstore.ResultRow) {
	if len(results) == 0 {
		return
	}
	current, refused := splitRows(rows)
	p.reportRefused(ctx, refused)
	p.announceRows(results, current)
	p.buffer.acknowledged(jobIDs(results))
}

// acknowledgePlain removes the plain successes that were written. The others are rejected,
// or an earlier exchange has written them: it writes them again to find out which.
func (p *Pilot) acknowledgePlain(ctx context.Context, plain []Result, completed []int64) error {
	if len(plain) == 0 {
		return nil
	}
	if len(completed) == len(plain) {
		p.announcePlain(plain)
		p.buffer.acknowledged(completed)
		return nil
	}
	slices.Sort(completed)
	var written, left []Result
	for _, result := range plain {
		if _, ok := slices.BinarySearch(completed, result.Job.ID); ok {
			written = append(written, result)
		} else {
			left = append(left, result)
		}
	}
	p.announcePlain(written)
	p.buffer.acknowledged(completed)
	return p.rewrite(ctx, left)
}

// rewrite writes results again, without claims. It keeps those that it cannot write.
func (p *Pilot) rewrite(ctx context.Context, results []Result) error {
	_, err := p.writeResults(ctx, paramsOf(results), func(rows []*rivertype.JobRow) { p.announceRows(results, rows) })
	if err != nil {
		p.pending.retry(results)
	}
	return err
}

// rewriteResults writes results whose exchange has failed until ctx ends.
func (p *Pilot) rewriteResults(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.pending.failed:
		}
		failed := false
		for page := range slices.Chunk(p.pending.takeRetries(), retryPage) {
			failed = p.rewritePage(ctx, page) != nil || failed
		}
		p.buffer.wake()
		if failed && !watchdog.Sleep(ctx, retryInterval) {
			return
		}
	}
}

func (p *Pilot) rewritePage(ctx context.Context, page []Result) error {
	ctx, cancel := context.WithTimeout(ctx, p.claimTimeout)
	defer cancel()
	return p.rewrite(ctx, page)
}

// claimLimited claims the jobs with a limit, in a transaction for each queue.
func (p *Pilot) claimLimited(ctx context.Context, claims []queueClaim) error {
	var failed error
	for _, claim := range claims {
		if len(claim.limited) == 0 {
			continue
		}
		got, err := claimedRows(p.store.ClaimLimited(ctx, claim.offer(claim.limited)))
		p.settle(claim.queue, claim.limited, got, err)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("claim jobs with a limit: %w", err))
		}
	}
	return failed
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

func jobIDs(results []Result) []int64 {
	ids := make([]int64, len(results))
	for i := range results {
		ids[i] = results[i].Job.ID
	}
	return ids
}
