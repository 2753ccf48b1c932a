package crons

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// cronUpdate is the work of one transaction for one cron: what was read, and what decide
// makes of it.
type cronUpdate struct {
	// What was read.
	cron         *cronstore.Cron     // as it was locked
	timeline     *cronstore.Timeline // its definition
	since        time.Time           // the ticks after it are examined
	limit        int                 // maximum length of due
	due          []cronstore.Due     // due ticks after since
	examined     int                 // number of ticks
	more         bool                // more ticks are due after these
	firstDelayed time.Time           // first tick whose jitter has not passed, or zero
	queue        cronstore.Queue     // ticks that wait for the end of a run
	earlier      *run                // the newest active run, or nil
	active       []int64             // the active runs, or the newest of them
	moreActive   bool                // older runs may be active too
	unstarted    bool                // all active runs wait, and are locked
	floor        int64               // the lowest job id that can belong to an active run

	// What was decided.
	dequeued  []cronstore.Tick  // queued ticks that leave the queue
	rows      []cronstore.Tick  // new rows of the ledger
	watermark time.Time         // every tick up to it is in the ledger
	next      time.Time         // of the next check
	blocked   cronstore.Blocked // the run because of which the newest tick was skipped
	ready     time.Time         // when its jobs become available; zero means at once
}

// collect finds the due ticks that are not recorded.
func (u *cronUpdate) collect(now time.Time, recorded map[cronstore.Key]bool) {
	u.due, u.more, u.firstDelayed = u.due[:0], false, time.Time{}
	for tick := range u.timeline.Ticks(u.since, now) {
		if tick.FiresAt.After(now) {
			u.firstDelayed = tick.At
			return
		}
		if recorded[cronstore.KeyOf(u.cron.Name, tick.At)] {
			continue
		}
		if u.more = len(u.due) == u.limit; u.more {
			return
		}
		u.due = append(u.due, tick)
	}
}

// ticksOf counts the due ticks that were examined.
func ticksOf(updates []*cronUpdate) int {
	n := 0
	for _, u := range updates {
		n += u.examined
	}
	return n
}

// splitUndecided separates the updates whose verdict may still change because another run
// may end before their newest tick is due. They are decided again when that tick is due.
func splitUndecided(updates []*cronUpdate, now, at time.Time) (settled, busy []*cronUpdate) {
	for _, u := range updates {
		if u.dependsOnRun(now) {
			busy = append(busy, u)
			continue
		}
		u.ready = at
		settled = append(settled, u)
	}
	return settled, busy
}

// dependsOnRun reports whether a tick is due after now whose verdict depends on another
// run.
func (u *cronUpdate) dependsOnRun(now time.Time) bool {
	return (u.earlier != nil || len(u.queue.Oldest) > 0) && u.newest().After(now)
}

// newest returns when the newest due tick fires.
func (u *cronUpdate) newest() time.Time {
	if len(u.due) == 0 {
		return time.Time{}
	}
	return u.due[len(u.due)-1].FiresAt
}

// decide sets the rows, the watermark and the next check.
func (u *cronUpdate) decide(now time.Time) {
	if !u.timeline.Readable() {
		return
	}
	spec, timeline := u.timeline.Spec(), u.timeline
	u.dequeued = dequeue(spec, now, u.queue.Oldest, u.earlier, timeline.Paused(), !u.cron.RemovedAt.IsZero())
	u.queue.Length -= len(u.dequeued)
	decisions := decide(spec, now, u.due, u.more, overlapState{
		earlier: u.earlier, waiting: u.queue.Length, queuedFires: len(u.dequeued) > 0, unstarted: u.unstarted,
	})
	u.rows = merge(u.cron.Name, decisions)
	u.blocked = u.blockedBy(decisions)
	for _, row := range u.rows {
		if row.Verdict == cronstore.Queued {
			u.queue.Length++
		}
	}
	switch {
	case !u.firstDelayed.IsZero():
		u.watermark = latest(u.watermark, u.firstDelayed.Add(-time.Microsecond)) // this tick is not settled yet
	case !u.more:
		u.watermark = now
	case len(decisions) > 0:
		u.watermark = decisions[len(decisions)-1].Tick
	}
	u.next, _ = timeline.Next(u.watermark)
}

// fires reports whether any tick of the update has a job.
func (u *cronUpdate) fires() bool {
	return slices.ContainsFunc(slices.Concat(u.dequeued, u.rows), func(row cronstore.Tick) bool { return row.Verdict.Fires() })
}

// overlap returns the overlap policy.
func (u *cronUpdate) overlap() string {
	if !u.timeline.Readable() {
		return ""
	}
	return u.timeline.Spec().Overlap
}

// setActiveRuns sets the runs that the cron must not overlap.
func (u *cronUpdate) setActiveRuns(found runs) {
	u.active, u.moreActive = found.all, found.more
	if found.active.ID != 0 {
		u.earlier = &found.active
	}
	switch {
	case found.more: // the oldest active run is not known
	case u.earlier != nil:
		u.floor = found.oldest
	default:
		u.floor = max(u.floor, found.newest)
	}
}
