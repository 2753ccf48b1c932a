package crons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// minBatch is how many crons the first transaction takes of many that are due
	// together: their jobs start while the others are written. Each that follows
	// takes twice as many, so that few round trips are made, up to maxBatch.
	minBatch = 250
	maxBatch = 2000
	// maxPage is how many crons are loaded at once.
	maxPage = 20_000
	// batchTarget is how long a transaction should take, well under a lease: each takes
	// fewer crons where they take longer.
	batchTarget = time.Second
	// fireTimeout bounds a transaction, so that a dead connection is noticed; after
	// each that took as long the next has twice the time, up to longestFire.
	fireTimeout = 10 * time.Second
	longestFire = time.Minute
	// stuckLimit is how long a leader goes on while nothing that it tries succeeds. It is
	// far longer than a slow machine needs for one small transaction.
	stuckLimit = time.Minute
	// probeEvery is how often an idle leader asks for the database's time.
	probeEvery = 10 * time.Second

	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// desk is what the loop of a term needs of the database.
type desk interface {
	// Now reads the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Upcoming returns the page of at most so many crons after a name, and when each is
	// due next.
	Upcoming(ctx context.Context, after string, most int) (cronstore.UpcomingPage, error)
	// Fire records what is due of these crons: now, or at an instant to come, before
	// which it does not commit.
	Fire(ctx context.Context, names []string, at time.Time) (fired, error)
}

// fired is what a transaction came to.
type fired struct {
	// Now is the database's time that decided what was due.
	Now time.Time
	// Next is when to look at each cron again; one that is missing does not
	// exist any more.
	Next map[string]time.Time
	// Prepared is how long the transaction took until it could be committed.
	Prepared time.Duration
	// Overhead is what of that the round trips took, by the first of them.
	Overhead time.Duration
}

// term is the loop of one lead.
type term struct {
	desk    desk
	meter   *meter
	logger  *slog.Logger
	clock   clock
	agenda  *agenda
	loading *loading      // nil: all crons are on the agenda
	batch   int           // of the next transaction, if size allows
	timeout time.Duration // of the next transaction
	*memory
	probed  time.Time
	backoff time.Duration
	failing time.Time // since when every step has failed; zero: the last one succeeded
}

// loading is a pass over all crons, page by page. What is due of the present agenda is
// fired between the pages.
type loading struct {
	agenda *agenda // the present one, or the one that takes its place at the end
	after  string  // the last cron that was loaded
	again  bool    // crons have changed since it began
}

func newTerm(d desk, m *meter, logger *slog.Logger) *term {
	return &term{
		desk: d, meter: m, logger: logger, agenda: newAgenda(), batch: minBatch,
		memory: newMemory(), timeout: fireTimeout,
	}
}

// run loads the crons, and again at each change, and fires what is due, until
// ctx ends or the term is over.
func (t *term) run(ctx context.Context, changes <-chan struct{}) error {
	t.loading = &loading{agenda: t.agenda}
	for {
		progress.Report(ctx)
		begun := time.Now()
		err := t.step(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, leaderstore.ErrDeposed), errors.Is(err, errUnconfirmed):
			return err
		case err != nil:
			if stuck := t.failed(begun); stuck > stuckLimit {
				return fmt.Errorf("nothing was committed for %s: %w", stuck.Round(time.Second), err)
			}
			t.logger.WarnContext(ctx, "firing crons failed and will be tried again", "error", err)
		default:
			t.backoff, t.failing = 0, time.Time{}
		}
		timer := time.NewTimer(t.pause(time.Now()))
		progress.Park(ctx)
		select {
		case <-ctx.Done():
		case <-changes:
			t.reload()
		case <-timer.C:
		}
		timer.Stop()
	}
}

// failed notes a step that failed, and returns for how long none has succeeded.
func (t *term) failed(begun time.Time) time.Duration {
	if t.failing.IsZero() {
		t.failing = begun
	}
	t.backoff = min(max(2*t.backoff, minBackoff), maxBackoff)
	return time.Since(t.failing)
}

// step does what there is to do now.
func (t *term) step(ctx context.Context) error {
	if time.Since(t.probed) >= probeEvery {
		if err := t.probe(ctx); err != nil {
			return err
		}
	}
	if t.loading != nil {
		if err := t.load(ctx); err != nil {
			return err
		}
	}
	return t.fire(ctx)
}

func (t *term) probe(ctx context.Context) error {
	sent := time.Now()
	now, err := t.desk.Now(ctx)
	if err != nil {
		return err
	}
	t.probed = time.Now()
	t.clock.observe(sent, t.probed, now)
	return nil
}

// reload has all crons loaded again. A pass that is under way is finished first, so that
// one comes to its end however often crons change.
func (t *term) reload() {
	if t.loading != nil {
		t.loading.again = true
		return
	}
	t.loading = &loading{agenda: newAgenda()}
}

// load loads the next page.
func (t *term) load(ctx context.Context) error {
	pass := t.loading
	_, err := t.page.Do(ctx, t.timeout, func(ctx context.Context, most int) (int, error) {
		page, err := t.desk.Upcoming(ctx, pass.after, most)
		if err != nil {
			return 0, err
		}
		for _, u := range page.Crons {
			pass.agenda.add(entry{u.Name, u.Next})
		}
		t.meter.know(page.Crons)
		pass.after = page.Next
		return page.Read, nil
	})
	if err != nil || pass.after != "" {
		return err
	}
	t.agenda, t.loading = pass.agenda, nil
	if pass.again {
		t.reload()
	}
	return nil
}

// fire records the crons that are due by the estimate, one batch, or those of the
// next instant when it is time to prepare them.
func (t *term) fire(ctx context.Context) error {
	taken, at := t.take(t.clock.now(time.Now()))
	if len(taken) == 0 {
		return nil
	}
	names := make([]string, len(taken))
	for i, e := range taken {
		names[i] = e.name
	}
	sent := time.Now()
	done, err := t.fireNames(ctx, names, at)
	if err != nil {
		t.agenda.add(taken...)
		return err
	}
	t.overhead = max(done.Overhead, t.overhead*4/5)
	t.size.Done(len(names), done.Prepared, t.overhead)
	t.pace.suspend(t.overhead > mostOverhead)
	if at.IsZero() {
		t.clock.observe(sent, time.Now(), done.Now)
	} else {
		t.pace.observe(len(names), done.Prepared)
	}
	for name, at := range done.Next {
		t.agenda.add(entry{name, at})
	}
	return nil
}

// fireNames makes one transaction, in a bounded time. One that fails makes the next
// ones smaller, and has them begin when their ticks are due.
func (t *term) fireNames(ctx context.Context, names []string, at time.Time) (fired, error) {
	bounded, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	done, err := t.desk.Fire(bounded, names, at)
	if err == nil {
		t.timeout = fireTimeout
		return done, nil
	}
	if ctx.Err() == nil {
		t.size.Failed()
		t.pace.suspend(true)
		if bounded.Err() != nil {
			t.timeout = min(2*t.timeout, longestFire)
		}
	}
	return fired{}, err
}

// take removes what to fire next: the crons of an instant to come, which is returned
// with them, once it is time to prepare them; else what is due.
func (t *term) take(now time.Time) ([]entry, time.Time) {
	if c, ok := t.coming(now); ok {
		if c.begin.After(now) {
			return nil, time.Time{}
		}
		return t.agenda.take(c.at, c.most), c.at
	}
	most := min(t.batch, t.size.Next())
	taken := t.agenda.take(now, most)
	if len(taken) == most {
		t.batch = min(2*t.batch, maxBatch)
	} else {
		t.batch = minBatch
	}
	return taken, time.Time{}
}

// coming are crons that are prepared before they are due.
type coming struct {
	at    time.Time // when the last of them is due
	begin time.Time
	most  int // can be prepared by then
}

// coming returns the next crons that are worth to be prepared together; false if
// they are too few to, or it is too late for that.
func (t *term) coming(now time.Time) (coming, bool) {
	if t.pace.suspended {
		return coming{}, false
	}
	for _, span := range [...]time.Duration{0, bunchSpan} {
		at, n := t.agenda.crowd(span, t.pace.most())
		if n < minBunch || !at.After(now) {
			continue
		}
		c := coming{at, at.Add(-t.pace.lead(n)), n}
		if n >= minCrowd {
			c.most = min(n, t.pace.fit(at.Sub(now)))
		}
		return c, c.most >= min(n, minCrowd)
	}
	return coming{}, false
}

// pause returns how long to wait for the next step.
func (t *term) pause(local time.Time) time.Duration {
	idle := max(t.probed.Add(probeEvery).Sub(local), 0)
	if t.backoff > 0 {
		return t.backoff
	}
	if t.loading != nil {
		return 0
	}
	next, ok := t.agenda.next()
	if !ok {
		return idle
	}
	now := t.clock.now(local)
	if c, ok := t.coming(now); ok {
		next = c.begin
	}
	return min(idle, max(next.Sub(now), 0))
}
