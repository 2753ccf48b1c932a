package crons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// minBatch is how many crons the first transaction takes if many are due together, so
	// that their jobs start while the others are written. Each following transaction
	// takes twice as many, up to maxBatch, to save round trips.
	minBatch = 250
	maxBatch = 2000
	// maxPage is the maximum number of crons in one page.
	maxPage = 20_000
	// batchTarget is the target duration of a transaction, well below the duration of a
	// lease. Slower transactions get fewer crons.
	batchTarget = time.Second
	// fireTimeout is the time limit of a transaction, so that a dead connection is
	// noticed. Each timeout doubles the limit of the next transaction, up to
	// maxFireTimeout.
	fireTimeout    = 10 * time.Second
	maxFireTimeout = time.Minute
	// silenceLimit is how long a leader continues while its pool gets no answer at all. Its
	// session still renews the lease, so only this node is cut off. Slow or failing
	// transactions do not end a term: every node has the same database.
	silenceLimit = time.Minute
	// probeEvery is how often an idle leader reads the database's clock.
	probeEvery = 10 * time.Second
	// verifyLead is how long before its stored time the next tick of a cron is computed again.
	// Another version of forge may have stored it, with another time zone database: by that of
	// this one the tick may be due earlier. The crons of a page are spread over verifySpread.
	verifyLead   = 3 * time.Hour
	verifySpread = time.Hour

	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// store is the database as a fireLoop uses it.
type store interface {
	// Now reads the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Upcoming returns the page of at most limit crons after a name, with the next due
	// time of each cron.
	Upcoming(ctx context.Context, after string, most int) (cronstore.UpcomingPage, error)
	// Fire records the due ticks of these crons. If at is set, Fire prepares the ticks up
	// to at and does not commit before at.
	Fire(ctx context.Context, names []string, at time.Time) (fireResult, error)
}

// fireResult is the result of a transaction.
type fireResult struct {
	// Now is the database's time that decided which ticks were due.
	Now time.Time
	// Next is the time of the next check of each cron. Crons that no longer exist are
	// missing.
	Next map[string]time.Time
	// Prepared is the time from the start of the transaction until it was ready to
	// commit.
	Prepared time.Duration
	// Overhead is the share of the round trips in Prepared, estimated from the first one.
	Overhead time.Duration
}

// fireLoop fires crons during one term.
type fireLoop struct {
	store   store
	meter   *meter
	logger  *slog.Logger
	clock   clock
	dueHeap *dueHeap
	loading *loading      // nil if all crons are loaded
	batch   int           // size of the next transaction, unless batchSize is smaller
	timeout time.Duration // time limit of the next transaction
	*termCache
	probed   time.Time
	backoff  time.Duration
	answered time.Time // when a step or a probe last succeeded
}

// loading is a pass over all crons, page by page. Between the pages, the loop fires due
// crons from its current heap.
type loading struct {
	dueHeap     *dueHeap // the loop's current heap, or its replacement
	after       string   // the last cron that is loaded
	reloadAfter bool     // crons have changed since the pass began
}

func newFireLoop(s store, cache *termCache, m *meter, logger *slog.Logger) *fireLoop {
	return &fireLoop{
		store: s, meter: m, logger: logger, dueHeap: newDueHeap(), batch: minBatch,
		termCache: cache, timeout: fireTimeout,
	}
}

// run loads the crons, reloads them after each change, and fires due ticks until ctx ends
// or the term is over.
func (l *fireLoop) run(ctx context.Context, changes <-chan struct{}) error {
	l.loading, l.answered = &loading{dueHeap: l.dueHeap}, time.Now()
	for {
		watchdog.Report(ctx)
		err := l.step(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil:
			if silence := l.failed(ctx); silence > silenceLimit {
				return fmt.Errorf("the database answered nothing on this node's pool for %s: %w", silence.Round(time.Second), err)
			}
			l.logger.WarnContext(ctx, "firing crons failed; retrying", "error", err)
		default:
			l.backoff, l.answered = 0, time.Now()
		}
		timer := time.NewTimer(l.pause(time.Now()))
		watchdog.Pause(ctx)
		select {
		case <-ctx.Done():
		case <-changes:
			l.reload()
		case <-timer.C:
		}
		timer.Stop()
	}
}

// failed records that a step failed, and reads the database's clock to tell a slow database
// from a pool that is cut off. It returns how long the database has answered nothing.
func (l *fireLoop) failed(ctx context.Context) time.Duration {
	l.backoff = min(max(2*l.backoff, minBackoff), maxBackoff)
	if l.probe(ctx) == nil {
		l.answered = time.Now()
	}
	return time.Since(l.answered)
}

// step does the work that is due now.
func (l *fireLoop) step(ctx context.Context) error {
	if time.Since(l.probed) >= probeEvery {
		if err := l.probe(ctx); err != nil {
			return err
		}
	}
	if l.loading != nil {
		if err := l.load(ctx); err != nil {
			return err
		}
	}
	return l.fire(ctx)
}

func (l *fireLoop) probe(ctx context.Context) error {
	probing, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	sent := time.Now()
	now, err := l.store.Now(probing)
	if err != nil {
		return err
	}
	l.probed = time.Now()
	l.clock.observe(sent, l.probed, now)
	return nil
}

// reload starts a new pass over all crons. If a pass is running, reload finishes it
// first, so frequent changes cannot keep a pass from completing.
func (l *fireLoop) reload() {
	if l.loading != nil {
		l.loading.reloadAfter = true
		return
	}
	l.loading = &loading{dueHeap: newDueHeap()}
}

// load loads the next page.
func (l *fireLoop) load(ctx context.Context) error {
	pass := l.loading
	_, err := l.pageSize.Do(ctx, l.timeout, func(ctx context.Context, limit int) (int, error) {
		page, err := l.store.Upcoming(ctx, pass.after, limit)
		if err != nil {
			return 0, err
		}
		l.verifyEarly(page.Crons)
		pass.dueHeap.add(page.Crons...)
		l.meter.initSeries(page.Crons)
		pass.after = page.Next
		return page.Read, nil
	})
	if err != nil || pass.after != "" {
		return err
	}
	l.dueHeap, l.loading = pass.dueHeap, nil
	if pass.reloadAfter {
		l.reload()
	}
	return nil
}

// verifyEarly makes the next check of stored crons earlier, see verifyLead. Crons that are due soon
// are left alone: a leader that is new has enough to do.
func (l *fireLoop) verifyEarly(stored []cronstore.Upcoming) {
	soon := l.clock.now(time.Now()).Add(verifyLead + verifySpread)
	for i := range stored {
		if next := &stored[i].Next; next.After(soon) {
			*next = next.Add(-verifyLead - verifySpread*time.Duration(i)/time.Duration(len(stored)))
		}
	}
}

// fire records one batch: the crons that are due by the estimated clock, or those of the
// next instant if it is time to prepare them.
func (l *fireLoop) fire(ctx context.Context) error {
	batch, at := l.popBatch(l.clock.now(time.Now()))
	if len(batch) == 0 {
		return nil
	}
	names := make([]string, len(batch))
	for i, c := range batch {
		names[i] = c.Name
	}
	sent := time.Now()
	result, err := l.fireNames(ctx, names, at)
	if err != nil {
		l.dueHeap.add(batch...)
		return err
	}
	l.overhead = max(result.Overhead, l.overhead*4/5)
	l.batchSize.Done(len(names), result.Prepared, l.overhead)
	l.leadTime.suspend(l.overhead > maxOverhead)
	if at.IsZero() {
		l.clock.observe(sent, time.Now(), result.Now)
	} else {
		l.leadTime.observe(len(names), result.Prepared)
	}
	for name, next := range result.Next {
		l.dueHeap.add(cronstore.Upcoming{Name: name, Next: next})
	}
	return nil
}

// fireNames runs one transaction with a time limit. After a failure, the next
// transactions are smaller and are not prepared ahead.
func (l *fireLoop) fireNames(ctx context.Context, names []string, at time.Time) (fireResult, error) {
	fireCtx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	result, err := l.store.Fire(fireCtx, names, at)
	if err == nil {
		l.timeout = fireTimeout
		return result, nil
	}
	if ctx.Err() == nil {
		l.batchSize.Failed()
		l.leadTime.suspend(true)
		if fireCtx.Err() != nil {
			l.timeout = min(2*l.timeout, maxFireTimeout)
		}
	}
	return fireResult{}, err
}

// popBatch removes the crons to fire next. If it is time to prepare a batch, popBatch
// returns its crons and its instant. Otherwise it returns the crons that are due.
func (l *fireLoop) popBatch(now time.Time) ([]cronstore.Upcoming, time.Time) {
	if c, ok := l.nextBatch(now); ok {
		if c.begin.After(now) {
			return nil, time.Time{}
		}
		return l.dueHeap.pop(c.at, c.most), c.at
	}
	limit := min(l.batch, l.batchSize.Next())
	popped := l.dueHeap.pop(now, limit)
	if len(popped) == limit {
		l.batch = min(2*l.batch, maxBatch)
	} else {
		l.batch = minBatch
	}
	return popped, time.Time{}
}

// aheadBatch is a batch of crons to prepare before they are due.
type aheadBatch struct {
	at    time.Time // when the last of them is due
	begin time.Time
	most  int // how many crons can be prepared by then
}

// nextBatch returns the next batch that is worth preparing ahead. It returns false if the
// batch is too small or if it is too late.
func (l *fireLoop) nextBatch(now time.Time) (aheadBatch, bool) {
	if l.leadTime.suspended {
		return aheadBatch{}, false
	}
	for _, span := range [...]time.Duration{0, prepareSpan} {
		at, n := l.dueHeap.dueTogether(span, l.leadTime.maxCrons())
		if n < minPrepared || !at.After(now) {
			continue
		}
		c := aheadBatch{at, at.Add(-l.leadTime.forCrons(n)), n}
		if n >= minMeasured {
			c.most = min(n, l.leadTime.cronsWithin(at.Sub(now)))
		}
		return c, c.most >= min(n, minMeasured)
	}
	return aheadBatch{}, false
}

// pause returns the time until the next step.
func (l *fireLoop) pause(local time.Time) time.Duration {
	idle := max(l.probed.Add(probeEvery).Sub(local), 0)
	if l.backoff > 0 {
		return l.backoff
	}
	if l.loading != nil {
		return 0
	}
	next, ok := l.dueHeap.next()
	if !ok {
		return idle
	}
	now := l.clock.now(local)
	if c, ok := l.nextBatch(now); ok {
		next = c.begin
	}
	return min(idle, max(next.Sub(now), 0))
}

// termCache is what a Firer keeps from one term to its next, so that short terms do not
// start from nothing. No verdict depends on it.
type termCache struct {
	// timelines contains the cached timelines by the cron's name. Each is compared with its
	// row before use.
	timelines map[string]*cronstore.Timeline
	// floors contains the lowest job ids that can belong to an active run.
	floors map[string]int64
	// batchSize is the number of crons in a transaction. tickLimit is the number of due
	// ticks that it examines.
	batchSize, tickLimit *postgres.BatchSize
	// pageSize is the number of crons in one page.
	pageSize *postgres.BatchSize
	leadTime leadTime
	// overhead is the estimated duration of the round trips of a transaction. It
	// decreases slowly because some round trips are fast even on a busy machine.
	overhead time.Duration
}

func newTermCache() *termCache {
	return &termCache{
		timelines: map[string]*cronstore.Timeline{}, floors: map[string]int64{},
		batchSize: postgres.NewBatchSize(maxBatch, batchTarget), tickLimit: postgres.NewBatchSize(maxTicks, batchTarget),
		pageSize: postgres.NewBatchSize(maxPage, batchTarget),
	}
}

// forget drops the cached data of a cron.
func (c *termCache) forget(name string) {
	delete(c.timelines, name)
	delete(c.floors, name)
}
