package crons

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// maxQueued is the maximum number of queued ticks of one cron.
const maxQueued = 1000

// run is a job of a cron that has not ended.
type run struct {
	ID    int64
	State string
	// Since is when the current attempt began, or when the next one is or was due.
	Since time.Time
	// Started reports whether the job has had an attempt.
	Started bool
}

// String describes the state of the run.
func (r run) String() string {
	since := r.Since.UTC().Format(time.RFC3339)
	switch {
	case r.State == "running":
		return "running since " + since
	case r.State == "retryable":
		return "waiting for its next attempt at " + since
	case r.Started:
		return "waiting for its next attempt since " + since
	case r.State == "scheduled":
		return "scheduled for " + since
	default:
		return "waiting since " + since
	}
}

// overlapState is the input of the overlap policy.
type overlapState struct {
	// earlier is the newest active run, or nil.
	earlier *run
	// waiting is the number of queued ticks.
	waiting int
	// queuedFires reports whether a queued tick fires in this batch.
	queuedFires bool
	// unstarted reports that no active run has started, and that none can start before
	// this transaction ends.
	unstarted bool
}

// apply applies an overlap policy to the decisions that fire.
func (s overlapState) apply(overlap string, decisions []cronstore.Tick) {
	switch overlap {
	case overlapAllow:
	case overlapQueue:
		s.queue(decisions, 1, "Another tick is already queued.")
	case overlapQueueAll:
		s.queue(decisions, maxQueued, fmt.Sprintf("%d ticks are already queued.", maxQueued))
	case overlapReplace:
		keepNewest(decisions, cronstore.Replaced)
	case overlapReplaceWaiting:
		if s.unstarted || s.earlier == nil && !s.queuedFires {
			keepNewest(decisions, cronstore.Replaced)
			return
		}
		s.skip(decisions)
	default:
		s.skip(decisions)
	}
}

// skip lets the newest tick fire if no run is active, and skips the others.
func (s overlapState) skip(decisions []cronstore.Tick) {
	if s.earlier == nil && !s.queuedFires {
		keepNewest(decisions, cronstore.SkippedOverlap)
		return
	}
	for i := range decisions {
		if d := &decisions[i]; d.Verdict.Fires() {
			d.Verdict, d.Reason = cronstore.SkippedOverlap, s.reason()
		}
	}
}

// reason returns why a tick did not fire.
func (s overlapState) reason() string {
	if s.earlier != nil {
		return cronstore.BlockedReason(s.earlier.ID, s.earlier.String())
	}
	return "An earlier tick fired at the same moment."
}

// keepNewest sets another verdict on all firing ticks but the newest.
func keepNewest(decisions []cronstore.Tick, other cronstore.Verdict) {
	found := false
	for i := len(decisions) - 1; i >= 0; i-- {
		d := &decisions[i]
		if !d.Verdict.Fires() {
			continue
		}
		if found {
			d.Verdict, d.Reason = other, "A newer tick of this cron fired at the same moment."
		}
		found = true
	}
}

// queue lets the oldest tick fire if no run is active and no tick is queued. It queues
// the other ticks until the queue has limit ticks, and skips the rest.
func (s overlapState) queue(decisions []cronstore.Tick, limit int, fullReason string) {
	busy := s.earlier != nil || s.queuedFires || s.waiting > 0
	for i := range decisions {
		d := &decisions[i]
		switch {
		case !d.Verdict.Fires():
		case !busy:
			busy, s.queuedFires = true, true
		case s.waiting < limit:
			d.Verdict, d.Reason = cronstore.Queued, s.reason()
			s.waiting++
		default:
			d.Verdict, d.Reason = cronstore.SkippedOverlap, fullReason
		}
	}
}

// dequeue returns the queued ticks that leave the queue, with their verdicts: one tick if
// no run is active, all ticks if overlap is now allowed, and none while the cron is
// paused. The queued ticks of a removed cron are skipped.
func dequeue(spec *cronstore.Spec, now time.Time, queue []cronstore.Tick, earlier *run, paused, removed bool) []cronstore.Tick {
	switch {
	case removed:
	case paused || len(queue) == 0:
		return nil
	case spec.Overlap == overlapAllow:
	case earlier != nil:
		return nil
	default:
		queue = queue[:1]
	}
	dequeued := make([]cronstore.Tick, len(queue))
	for i, row := range queue {
		row.Verdict, row.Reason = cronstore.Fired, cronstore.WaitedReason(now.Sub(row.Tick).Round(time.Millisecond))
		if removed {
			row.Verdict, row.Reason = cronstore.SkippedExcluded, "The cron was removed while this tick was queued."
		}
		dequeued[i] = row
	}
	return dequeued
}
