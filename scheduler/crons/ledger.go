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
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// pausedEvery is how often a paused cron is checked.
	pausedEvery = time.Minute
	// unreadableEvery is how often a cron is checked whose definition this binary cannot
	// read.
	unreadableEvery = time.Minute
	// queueEvery is how often a cron with queued ticks is checked.
	queueEvery = 250 * time.Millisecond
	// timelineCacheSpan is how soon a cron must be due again for its timeline to stay in
	// memory. Reading a definition again costs less than keeping a hundred thousand.
	timelineCacheSpan = 10 * time.Minute
	// roundTripFactor is the assumed duration of all round trips of a transaction, in
	// multiples of the first one. There are four before the commit. An estimate that is
	// too low makes transactions smaller, which reduces the throughput.
	roundTripFactor = 6
	// maxTicks is the maximum number of due ticks that a transaction examines, for all
	// its crons together.
	maxTicks = 50_000
	// queueBatch is the maximum number of queued ticks of one cron in a transaction.
	queueBatch = 100
)

// ledger implements store for one term on PostgreSQL.
type ledger struct {
	options Options
	fence   leaderstore.Fence
	meter   *meter
	logger  *slog.Logger
	*termCache
	// queued contains the crons that had queued ticks when they were loaded.
	queued map[string]bool
	// loadedNames contains the crons of the pages that are loaded so far.
	loadedNames map[string]bool
	unconfirmed bool // the last commit failed, and may exist on the primary alone
	traces      tickTraces
}

func newLedger(options Options, fence leaderstore.Fence, cache *termCache, m *meter, logger *slog.Logger) *ledger {
	return &ledger{
		options: options, fence: fence, meter: m, logger: logger, termCache: cache, queued: map[string]bool{},
		traces: tickTraces{tracer: options.Tracer, fence: fence},
	}
}

// Now implements store.
func (l *ledger) Now(ctx context.Context) (time.Time, error) {
	now, err := cronstore.New(l.options.Pool).Now(ctx)
	return clockOf(now), err
}

// clockOf returns the clock that decides: the database's.
func clockOf(databaseTime time.Time) time.Time {
	if failpoint.Off("crons/database-clock") {
		return failpoint.LocalClock()
	}
	return databaseTime
}

// Upcoming implements store.
func (l *ledger) Upcoming(ctx context.Context, after string, limit int) (cronstore.UpcomingPage, error) {
	page, err := cronstore.New(l.options.Pool).ListUpcoming(ctx, after, limit)
	if err != nil {
		return page, err
	}
	if after == "" {
		l.loadedNames = map[string]bool{}
	}
	for _, u := range page.Crons {
		l.loadedNames[u.Name] = true
		if delete(l.queued, u.Name); u.Queued {
			l.queued[u.Name] = true
		}
	}
	if page.Next == "" {
		for name := range l.timelines {
			if !l.loadedNames[name] {
				l.forget(name)
			}
		}
		l.loadedNames = nil
	}
	return page, nil
}

// Fire implements store. If a job cannot be inserted, Fire repeats the batch and isolates
// the rejected jobs, so that the other crons still fire.
func (l *ledger) Fire(ctx context.Context, names []string, at time.Time) (fireResult, error) {
	done, err := l.fire(ctx, names, at, false)
	if _, rejected := errors.AsType[*rejectedError](err); rejected {
		done, err = l.fire(ctx, names, at, true)
	}
	return done, err
}

// fire runs one fenced transaction. If at is set, it decides as if at had come.
func (l *ledger) fire(ctx context.Context, names []string, at time.Time, bisect bool) (fireResult, error) {
	var (
		result        fireResult
		updates, busy []*cronUpdate
		rows          []cronstore.Tick
		fencePassed   time.Time // when the fence was passed, by the local clock
		due           time.Time // ticks up to this time are due
		began         = time.Now()
	)
	failpoint.Hit("crons/before-fence")
	if failpoint.Off("crons/cancel") {
		ctx = context.WithoutCancel(ctx)
	}
	err := l.transact(ctx, at, func(ctx context.Context, tx pgx.Tx, now time.Time, trip time.Duration) (jobs []jobstore.NewJob, err error) {
		now = clockOf(now)
		result.Now, fencePassed, due = now, time.Now(), latest(now, at)
		result.Overhead = trip * roundTripFactor
		if updates, err = l.lockAndDecide(ctx, tx, now, due, names); err != nil {
			return nil, err
		}
		failpoint.Hit("crons/after-read")
		if due.After(now) {
			updates, busy = splitUndecided(updates, now, at)
		}
		if rows, jobs, err = l.write(ctx, tx, updates, at, bisect); err != nil {
			return nil, err
		}
		result.Prepared = time.Since(began)
		failpoint.Hit("crons/before-commit")
		return jobs, nil
	})
	l.traces.finish(rows, err)
	if err != nil {
		if ctx.Err() == nil {
			l.tickLimit.Failed()
		}
		return fireResult{}, fmt.Errorf("fire crons: %w", err)
	}
	failpoint.Hit("crons/after-commit")
	l.tickLimit.Done(ticksOf(updates), result.Prepared, max(result.Overhead, l.overhead))
	l.meter.count(rows, result.Now.Add(time.Since(fencePassed)))
	result.Next = l.nextChecks(updates, due)
	for _, u := range busy {
		result.Next[u.cron.Name] = u.newest()
	}
	l.dropTimelines(result)
	return result, nil
}

// dropTimelines removes the timelines of crons that are not due soon, or never again.
func (l *ledger) dropTimelines(done fireResult) {
	for name, at := range done.Next {
		if at.IsZero() || at.Sub(done.Now) > timelineCacheSpan {
			l.forget(name)
		}
	}
}

// lockAndDecide locks the crons and decides on the ticks that are due at a time, which
// may be later than now.
func (l *ledger) lockAndDecide(ctx context.Context, tx pgx.Tx, now, due time.Time, names []string) ([]*cronUpdate, error) {
	known := make([]time.Time, len(names))
	for i, name := range names {
		if timeline, ok := l.timelines[name]; ok {
			known[i] = timeline.UpdatedAt
		}
	}
	var (
		batch  pgx.Batch
		locked []cronstore.Cron
		inputs = newOverlapInputs()
	)
	cronstore.QueueLock(&batch, names, known, &locked)
	inputs.queue(&batch, l.expectedQueries(names)) // after the locks: no other transaction changes the crons now
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("read crons: %w", err)
	}
	updates, remaining := make([]*cronUpdate, len(locked)), l.tickLimit.Next()
	for i := range locked {
		watchdog.Report(ctx)
		updates[i] = l.collectDue(ctx, &locked[i], due, remaining)
		remaining -= updates[i].examined
	}
	if err := dropRecorded(ctx, tx, due, updates); err != nil {
		return nil, err
	}
	if err := l.readOverlapInputs(ctx, tx, updates, inputs); err != nil {
		return nil, err
	}
	if err := lockUnstarted(ctx, tx, updates, now); err != nil {
		return nil, err
	}
	for _, u := range updates {
		u.decide(due)
	}
	return updates, nil
}

// collectDue collects at most limit due ticks of a cron. If remaining is 0, other crons
// have used up the transaction's limit, and the ticks wait for the next transaction.
func (l *ledger) collectDue(ctx context.Context, cron *cronstore.Cron, now time.Time, remaining int) *cronUpdate {
	since := cron.Watermark
	if failpoint.Off("crons/catch-up") && l.timelines[cron.Name] == nil {
		since = now
	}
	u := &cronUpdate{cron: cron, timeline: l.resolveTimeline(ctx, cron), floor: l.floors[cron.Name], since: since, watermark: cron.Watermark}
	if !u.timeline.Readable() {
		return u
	}
	if remaining > 0 {
		u.limit = sliceLimit(u.timeline.Spec(), l.tickLimit.Next())
	}
	u.collect(now, nil)
	u.examined = len(u.due)
	return u
}

// resolveTimeline returns the cron's timeline, and parses it again if the cron has changed.
func (l *ledger) resolveTimeline(ctx context.Context, cron *cronstore.Cron) *cronstore.Timeline {
	if known, ok := l.timelines[cron.Name]; ok && known.UpdatedAt.Equal(cron.UpdatedAt) {
		return known
	}
	timeline, err := cron.Timeline()
	if err != nil {
		l.logger.ErrorContext(ctx, "a cron cannot be read and does not fire", "cron", cron.Name, "error", err)
		timeline = &cronstore.Timeline{UpdatedAt: cron.UpdatedAt}
	}
	l.timelines[cron.Name] = timeline
	return timeline
}

// dropRecorded removes ticks that are already in the ledger, for example because they
// were triggered by hand. A single row does not need this because the unique key rejects
// a duplicate. A range must not count such ticks.
func dropRecorded(ctx context.Context, tx pgx.Tx, now time.Time, updates []*cronUpdate) error {
	var (
		crons []string
		after []time.Time
	)
	for _, u := range updates {
		if len(u.due) > maxSeparateRows {
			crons, after = append(crons, u.cron.Name), append(after, u.cron.Watermark)
		}
	}
	if len(crons) == 0 {
		return nil
	}
	recorded, err := cronstore.New(tx).Recorded(ctx, crons, after)
	if err != nil || len(recorded) == 0 {
		return err
	}
	for _, u := range updates {
		if slices.ContainsFunc(u.due, func(tick cronstore.Due) bool { return recorded[cronstore.KeyOf(u.cron.Name, tick.At)] }) {
			u.collect(now, recorded)
		}
	}
	return nil
}

// write writes the ticks, the jobs and the watermarks. If at is set, the rows become
// visible at that time. write returns the new rows and the inserted jobs.
func (l *ledger) write(ctx context.Context, tx pgx.Tx, updates []*cronUpdate, at time.Time, bisect bool) ([]cronstore.Tick, []jobstore.NewJob, error) {
	rows, jobs, err := l.record(ctx, tx, updates, at)
	if err != nil {
		return nil, nil, err
	}
	firing := rows[:len(jobs)]
	if err := l.insert(ctx, tx, rows, jobs, bisect); err != nil {
		return nil, nil, err
	}
	if err := l.replace(ctx, tx, updates, firing); err != nil {
		return nil, nil, err
	}
	return rows, insertedJobs(jobs, firing), nil
}

// insertedJobs returns the jobs whose rows still fire: the others were rejected.
func insertedJobs(jobs []jobstore.NewJob, firing []cronstore.Tick) []jobstore.NewJob {
	inserted := make([]jobstore.NewJob, 0, len(jobs))
	for i, job := range jobs {
		if firing[i].Verdict.Fires() {
			inserted = append(inserted, job)
		}
	}
	return inserted
}

// record writes the ledger rows and the watermarks, and unless at is set, the notification of
// the jobs. It returns the new rows, firing rows first, and the jobs of the firing rows.
func (l *ledger) record(ctx context.Context, tx pgx.Tx, updates []*cronUpdate, at time.Time) ([]cronstore.Tick, []jobstore.NewJob, error) {
	var (
		batch         pgx.Batch
		all, dequeued []cronstore.Tick
		advance       []cronstore.Cron
		written       = cronstore.Written{}
	)
	for _, u := range updates {
		all, dequeued = append(all, u.rows...), append(dequeued, u.dequeued...)
		if u.watermark.After(u.cron.Watermark) {
			advance = append(advance, cronstore.Cron{Name: u.cron.Name, Watermark: u.watermark, NextTick: u.next, Blocked: u.blocked})
		}
	}
	if len(dequeued) > 0 {
		cronstore.QueueSettle(&batch, l.fence.Term, l.fence.NodeID, dequeued, written)
	}
	if len(all) > 0 {
		cronstore.QueueRecord(&batch, l.fence.Term, l.fence.NodeID, at, all, written)
	}
	if len(advance) > 0 {
		cronstore.QueueAdvance(&batch, advance)
	}
	if at.IsZero() {
		jobstore.BatchNotifyAvailable(&batch, firingQueues(updates))
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, nil, fmt.Errorf("record ticks: %w", err)
	}
	rows, jobs := l.jobsOf(updates, written)
	return rows, jobs, nil
}

// jobsOf returns the new rows, firing rows first, and the jobs of the firing rows.
func (l *ledger) jobsOf(updates []*cronUpdate, written cronstore.Written) ([]cronstore.Tick, []jobstore.NewJob) {
	var (
		firing, others []cronstore.Tick
		jobs           []jobstore.NewJob
	)
	for _, u := range updates {
		for _, row := range slices.Concat(u.dequeued, u.rows) {
			id, isWritten := written[cronstore.KeyOf(row.Cron, row.Tick)]
			row.JobID = id
			switch {
			case !isWritten:
			case row.Verdict.Fires():
				job := newJob(u.timeline.Spec(), row, l.fence.Term)
				job.ReadyAt = u.ready
				l.traces.start(row, job.Metadata)
				firing, jobs = append(firing, row), append(jobs, job)
			default:
				others = append(others, row)
			}
		}
	}
	return append(firing, others...), jobs
}

// nextChecks returns the time of the next check of each cron.
func (l *ledger) nextChecks(updates []*cronUpdate, now time.Time) map[string]time.Time {
	next := make(map[string]time.Time, len(updates))
	for _, u := range updates {
		switch timeline := u.timeline; {
		case !timeline.Readable():
			next[u.cron.Name] = now.Add(unreadableEvery)
		case timeline.Paused() && !u.next.IsZero() && !u.more:
			next[u.cron.Name] = latest(u.next, now.Add(pausedEvery))
		default:
			next[u.cron.Name] = u.next
			if queueCheck := now.Add(queueEvery); u.queue.Length > 0 && !timeline.Paused() && (u.next.IsZero() || queueCheck.Before(u.next)) {
				next[u.cron.Name] = queueCheck
			}
		}
	}
	return next
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
