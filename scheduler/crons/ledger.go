package crons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// pausedEvery is how often a paused cron is looked at.
	pausedEvery = time.Minute
	// unreadableEvery is how often a cron is looked at whose definition this
	// binary cannot read.
	unreadableEvery = time.Minute
	// queueEvery is how often a cron with a queue is looked at.
	queueEvery = 250 * time.Millisecond
	// rememberFor is how soon a cron must be due again for its definition to stay
	// in memory: reading it again costs less than keeping a hundred thousand.
	rememberFor = 10 * time.Minute
	// allTrips is how many times as long as the first all round trips of a transaction are
	// taken to be. There are four until it can be committed; to take them for shorter than
	// they are would make transactions smaller, and less would get done.
	allTrips = 6
	// mostTicks is how many due ticks a transaction looks at, of all its crons together.
	mostTicks = 50_000
	// queueBatch is how many queued ticks of one cron a transaction takes.
	queueBatch = 100
)

// ledger is the desk of one term on PostgreSQL.
type ledger struct {
	options Options
	schema  string
	fence   leaderstore.Fence
	meter   *meter
	logger  *slog.Logger
	*memory
	// queued are the crons that had ticks in the queue when they were loaded.
	queued map[string]bool
	// stays are the crons of the pages that were loaded so far.
	stays map[string]bool
}

// definition is what the leader remembers of a cron. It is checked against the
// row each time.
type definition struct {
	updatedAt time.Time
	spec      cronstore.Spec
	timeline  *cronstore.Timeline // nil: unreadable
	// floor is the lowest id of a job that could still be an active run.
	floor int64
}

// plan is what one transaction does for one cron.
type plan struct {
	cron       *cronstore.Locked
	definition *definition
	due        []cronstore.Due
	looked     int       // at so many ticks
	more       bool      // further ticks are due after these
	held       time.Time // the first tick whose jitter has not passed; zero: none
	queue      cronstore.Queue
	called     []cronstore.Tick // of the queue
	earlier    *run
	active     []int64 // all runs that are active
	unstarted  bool    // all of them wait, and are locked
	rows       []cronstore.Tick
	watermark  time.Time
	next       time.Time
	blocked    cronstore.Blocked
	ready      time.Time // when its jobs are to be available; zero: at once
}

func newLedger(options Options, schema string, fence leaderstore.Fence, m *meter, logger *slog.Logger) *ledger {
	return &ledger{options: options, schema: schema, fence: fence, meter: m, logger: logger, memory: newMemory(), queued: map[string]bool{}}
}

// Now implements desk.
func (l *ledger) Now(ctx context.Context) (time.Time, error) {
	now, err := cronstore.Now(ctx, l.options.Pool)
	return clockOf(now), err
}

// clockOf is the clock that decides: the database's.
func clockOf(database time.Time) time.Time {
	if failpoint.Off("crons/database-clock") {
		return failpoint.LocalClock()
	}
	return database
}

// Upcoming implements desk.
func (l *ledger) Upcoming(ctx context.Context, after string, most int) (cronstore.UpcomingPage, error) {
	page, err := cronstore.ListUpcoming(ctx, l.options.Pool, after, most)
	if err != nil {
		return page, err
	}
	if after == "" {
		l.stays = map[string]bool{}
	}
	for _, u := range page.Crons {
		l.stays[u.Name] = true
		if delete(l.queued, u.Name); u.Queued {
			l.queued[u.Name] = true
		}
	}
	if page.Next == "" {
		for name := range l.known {
			if !l.stays[name] {
				delete(l.known, name)
			}
		}
		l.stays = nil
	}
	return page, nil
}

// Fire implements desk. A job that cannot be inserted must not keep the others
// from firing: then the batch is done again, carefully.
func (l *ledger) Fire(ctx context.Context, names []string, at time.Time) (fired, error) {
	done, err := l.fire(ctx, names, at, false)
	if _, refused := errors.AsType[*refusedError](err); refused {
		done, err = l.fire(ctx, names, at, true)
	}
	return done, err
}

// fire is one fenced transaction. For an instant to come it is decided as if that
// had come.
func (l *ledger) fire(ctx context.Context, names []string, at time.Time, careful bool) (fired, error) {
	var (
		done        fired
		plans, busy []*plan
		rows        []cronstore.Tick
		passed      time.Time // the fence, by the local clock
		due         time.Time // up to when ticks are due
		began       = time.Now()
	)
	failpoint.Hit("crons/before-fence")
	if failpoint.Off("crons/cancel") {
		ctx = context.WithoutCancel(ctx)
	}
	err := l.transact(ctx, at, func(ctx context.Context, tx pgx.Tx, now time.Time, trip time.Duration) error {
		var err error
		now = clockOf(now)
		done.Now, passed, due = now, time.Now(), latest(now, at)
		done.Overhead = trip * allTrips
		if plans, err = l.plan(ctx, tx, now, due, names); err != nil {
			return err
		}
		failpoint.Hit("crons/after-read")
		if due.After(now) {
			plans, busy = sortOut(plans, now, at)
		}
		if rows, err = l.write(ctx, tx, plans, at, careful); err != nil {
			return err
		}
		done.Prepared = time.Since(began)
		failpoint.Hit("crons/before-commit")
		return nil
	})
	if err != nil {
		if ctx.Err() == nil {
			l.ticks.Failed()
		}
		return fired{}, fmt.Errorf("fire crons: %w", err)
	}
	failpoint.Hit("crons/after-commit")
	l.ticks.Done(ticksOf(plans), done.Prepared, max(done.Overhead, l.overhead))
	l.meter.count(rows, done.Now.Add(time.Since(passed)))
	done.Next = l.wakeups(plans, due)
	for _, p := range busy {
		done.Next[p.cron.Name] = p.newest()
	}
	l.forget(done)
	return done, nil
}

// ticksOf counts the due ticks that were looked at.
func ticksOf(plans []*plan) int {
	n := 0
	for _, p := range plans {
		n += p.looked
	}
	return n
}

// sortOut separates the plans that the end of another run may yet change before
// their newest tick is due: they are made again when it is.
func sortOut(plans []*plan, now, at time.Time) (settled, busy []*plan) {
	for _, p := range plans {
		if p.waits(now) {
			busy = append(busy, p)
			continue
		}
		p.ready = at
		settled = append(settled, p)
	}
	return settled, busy
}

// waits says that something is due after now, and that another run decides about it.
func (p *plan) waits(now time.Time) bool {
	return (p.earlier != nil || len(p.queue.Oldest) > 0) && p.newest().After(now)
}

// newest is when the newest of the due ticks fires.
func (p *plan) newest() time.Time {
	if len(p.due) == 0 {
		return time.Time{}
	}
	return p.due[len(p.due)-1].FiresAt
}

// forget drops the definitions of crons that are not due for long, or never
// again.
func (l *ledger) forget(done fired) {
	for name, at := range done.Next {
		if at.IsZero() || at.Sub(done.Now) > rememberFor {
			delete(l.known, name)
		}
	}
}

// plan locks the crons and decides what becomes of the ticks that are due by an
// instant, which may come after now.
func (l *ledger) plan(ctx context.Context, tx pgx.Tx, now, due time.Time, names []string) ([]*plan, error) {
	asked := make([]cronstore.Known, len(names))
	for i, name := range names {
		asked[i] = cronstore.Known{Name: name}
		if d, ok := l.known[name]; ok {
			asked[i].UpdatedAt = d.updatedAt
		}
	}
	var (
		batch  pgx.Batch
		locked []cronstore.Locked
		found  = newSurroundings()
	)
	cronstore.QueueLock(&batch, asked, &locked)
	found.queue(&batch, l.expect(names)) // after the locks: nobody changes them any more
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("read crons: %w", err)
	}
	plans, left := make([]*plan, len(locked)), l.ticks.Next()
	for i := range locked {
		progress.Report(ctx)
		plans[i] = l.gather(ctx, &locked[i], due, left)
		left -= plans[i].looked
	}
	if err := dropRecorded(ctx, tx, plans); err != nil {
		return nil, err
	}
	if err := l.surround(ctx, tx, plans, found); err != nil {
		return nil, err
	}
	if err := lockUnstarted(ctx, tx, plans, now); err != nil {
		return nil, err
	}
	for _, p := range plans {
		p.decide(due)
	}
	return plans, nil
}

// gather collects the due ticks of a cron. When others have taken up what a
// transaction may look at, the cron's stay for the next one.
func (l *ledger) gather(ctx context.Context, cron *cronstore.Locked, now time.Time, left int) *plan {
	since := cron.Watermark
	if failpoint.Off("crons/catch-up") && l.known[cron.Name] == nil {
		since = now
	}
	p := &plan{cron: cron, definition: l.define(ctx, cron), watermark: cron.Watermark}
	if p.definition.timeline == nil {
		return p
	}
	limit := sliceLimit(&p.definition.spec, l.ticks.Next())
	if left <= 0 {
		limit = 0
	}
	for tick := range p.definition.timeline.Ticks(since, now) {
		if tick.FiresAt.After(now) {
			p.held = tick.At
			break
		}
		if p.more = len(p.due) == limit; p.more {
			break
		}
		p.due = append(p.due, tick)
	}
	p.looked = len(p.due)
	return p
}

// define returns the cron's definition, read anew if it changed.
func (l *ledger) define(ctx context.Context, cron *cronstore.Locked) *definition {
	if !cron.Stale {
		return l.known[cron.Name]
	}
	d := &definition{updatedAt: cron.UpdatedAt, spec: cron.Spec}
	err := cron.Err
	if err == nil {
		d.timeline, err = cron.Timeline()
	}
	if err != nil {
		l.logger.ErrorContext(ctx, "a cron cannot be read and does not fire", "cron", cron.Name, "error", err)
	}
	if old, ok := l.known[cron.Name]; ok {
		d.floor = old.floor
	}
	l.known[cron.Name] = d
	return d
}

// dropRecorded leaves out ticks that stand in the ledger before their time was
// settled, as those that were triggered by hand. A row of its own needs no such
// care: the unique key keeps it out. A range must not count them.
func dropRecorded(ctx context.Context, tx pgx.Tx, plans []*plan) error {
	var (
		crons []string
		after []time.Time
	)
	for _, p := range plans {
		if len(p.due) > longRun {
			crons, after = append(crons, p.cron.Name), append(after, p.cron.Watermark)
		}
	}
	if len(crons) == 0 {
		return nil
	}
	recorded, err := cronstore.Recorded(ctx, tx, crons, after)
	if err != nil || len(recorded) == 0 {
		return err
	}
	for _, p := range plans {
		p.due = slices.DeleteFunc(p.due, func(tick cronstore.Due) bool {
			return recorded[cronstore.KeyOf(p.cron.Name, tick.At)]
		})
	}
	return nil
}

// decide fills in the rows and how far they go.
func (p *plan) decide(now time.Time) {
	if p.definition.timeline == nil {
		return
	}
	spec, timeline := &p.definition.spec, p.definition.timeline
	p.called = callUp(spec, now, p.queue.Oldest, p.earlier, timeline.Paused(), !p.cron.RemovedAt.IsZero())
	p.queue.Length -= len(p.called)
	decisions := decide(spec, now, p.due, p.more, turn{
		earlier: p.earlier, waiting: p.queue.Length, taken: len(p.called) > 0, unstarted: p.unstarted,
	})
	p.rows = merge(p.cron.Name, decisions)
	p.blocked = p.blockedBy(decisions)
	for _, row := range p.rows {
		if row.Verdict == cronstore.Queued {
			p.queue.Length++
		}
	}
	switch {
	case !p.held.IsZero():
		p.watermark = latest(p.watermark, p.held.Add(-time.Microsecond)) // it is not settled yet
	case !p.more:
		p.watermark = now
	case len(decisions) > 0:
		p.watermark = decisions[len(decisions)-1].at
	}
	p.next, _ = p.definition.timeline.Next(p.watermark)
}

// write records the plans, inserts the jobs and moves the watermarks, all to be seen
// at an instant to come if there is one. It returns the rows that are new.
func (l *ledger) write(ctx context.Context, tx pgx.Tx, plans []*plan, at time.Time, careful bool) ([]cronstore.Tick, error) {
	rows, jobs, err := l.record(ctx, tx, plans, at)
	if err != nil {
		return nil, err
	}
	if err := l.insert(ctx, tx, rows, jobs, careful); err != nil {
		return nil, err
	}
	if err := l.replace(ctx, tx, plans, rows[:len(jobs)]); err != nil {
		return nil, err
	}
	return rows, nil
}

// record writes the rows of the ledger, the watermarks and the notification of the jobs.
// It returns the new rows, those that fire first, and the jobs of these.
func (l *ledger) record(ctx context.Context, tx pgx.Tx, plans []*plan, at time.Time) ([]cronstore.Tick, []jobstore.NewJob, error) {
	var (
		batch       pgx.Batch
		all, called []cronstore.Tick
		advance     []cronstore.Progress
		written     = cronstore.Written{}
	)
	for _, p := range plans {
		all, called = append(all, p.rows...), append(called, p.called...)
		if p.watermark.After(p.cron.Watermark) {
			advance = append(advance, cronstore.Progress{Name: p.cron.Name, Watermark: p.watermark, Next: p.next, Blocked: p.blocked})
		}
	}
	if len(called) > 0 {
		cronstore.QueueSettle(&batch, l.fence.Term, l.fence.NodeID, called, written)
	}
	if len(all) > 0 {
		cronstore.QueueRecord(&batch, l.fence.Term, l.fence.NodeID, at, all, written)
	}
	if len(advance) > 0 {
		cronstore.QueueAdvance(&batch, advance)
	}
	l.announce(&batch, plans)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, nil, fmt.Errorf("record ticks: %w", err)
	}
	rows, jobs := l.jobsOf(plans, written)
	return rows, jobs, nil
}

// jobsOf returns the rows that were written, those that fire first, and the jobs of these.
func (l *ledger) jobsOf(plans []*plan, written cronstore.Written) ([]cronstore.Tick, []jobstore.NewJob) {
	var (
		firing, others []cronstore.Tick
		jobs           []jobstore.NewJob
	)
	for _, p := range plans {
		for _, row := range slices.Concat(p.called, p.rows) {
			id, isWritten := written[cronstore.KeyOf(row.Cron, row.Tick)]
			row.JobID = id
			switch {
			case !isWritten:
			case row.Verdict.Fires():
				job := newJob(&p.definition.spec, row, l.fence.Term)
				job.ReadyAt = p.ready
				firing, jobs = append(firing, row), append(jobs, job)
			default:
				others = append(others, row)
			}
		}
	}
	return append(firing, others...), jobs
}

// fires says whether any of the plan's ticks has a job.
func (p *plan) fires() bool {
	return slices.ContainsFunc(slices.Concat(p.called, p.rows), func(row cronstore.Tick) bool { return row.Verdict.Fires() })
}

// wakeups says when to look at each cron again.
func (l *ledger) wakeups(plans []*plan, now time.Time) map[string]time.Time {
	next := make(map[string]time.Time, len(plans))
	for _, p := range plans {
		switch timeline := p.definition.timeline; {
		case timeline == nil:
			next[p.cron.Name] = now.Add(unreadableEvery)
		case timeline.Paused() && !p.next.IsZero() && !p.more:
			next[p.cron.Name] = latest(p.next, now.Add(pausedEvery))
		default:
			next[p.cron.Name] = p.next
			if turn := now.Add(queueEvery); p.queue.Length > 0 && !timeline.Paused() && (p.next.IsZero() || turn.Before(p.next)) {
				next[p.cron.Name] = turn
			}
		}
	}
	return next
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
