package crons

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// maxQueued is how many ticks of one cron may wait for their turn.
const maxQueued = 1000

// run is a job of a cron that has not come to its end.
type run struct {
	ID    int64
	State string
	// Since is when its attempt began, or when the next one is or was due.
	Since time.Time
	// Started says that it has had an attempt.
	Started bool
}

// String says what the run is doing.
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

// turn is what stands before a tick that is due.
type turn struct {
	// earlier is the newest run that is still active, or nil.
	earlier *run
	// waiting is how many ticks are queued.
	waiting int
	// taken says that a queued tick fires in this batch.
	taken bool
	// unstarted says that no active run has started, and none can before this
	// transaction ends.
	unstarted bool
}

// apply lets the overlap policy object to decisions that fire.
func (t turn) apply(overlap string, decisions []decision) {
	switch overlap {
	case overlapAllow:
	case overlapQueue:
		t.queue(decisions, 1, "Another tick waits for its turn already.")
	case overlapQueueAll:
		t.queue(decisions, maxQueued, fmt.Sprintf("%d ticks wait for their turn already.", maxQueued))
	case overlapReplace:
		keepFreshest(decisions, cronstore.Replaced)
	case overlapReplaceWaiting:
		if t.unstarted || t.earlier == nil && !t.taken {
			keepFreshest(decisions, cronstore.Replaced)
			return
		}
		t.skip(decisions)
	default:
		t.skip(decisions)
	}
}

// skip lets the freshest fire, if nothing runs.
func (t turn) skip(decisions []decision) {
	if t.earlier == nil && !t.taken {
		keepFreshest(decisions, cronstore.SkippedOverlap)
		return
	}
	for i := range decisions {
		if d := &decisions[i]; d.verdict.Fires() {
			d.verdict, d.reason = cronstore.SkippedOverlap, t.reason()
		}
	}
}

// reason says what a tick could not overlap.
func (t turn) reason() string {
	if t.earlier != nil {
		return cronstore.BlockedReason(t.earlier.ID, t.earlier.String())
	}
	return "An earlier tick had its turn at the same moment."
}

// keepFreshest gives all but the newest tick that fires another verdict.
func keepFreshest(decisions []decision, other cronstore.Verdict) {
	found := false
	for i := len(decisions) - 1; i >= 0; i-- {
		d := &decisions[i]
		if !d.verdict.Fires() {
			continue
		}
		if found {
			d.verdict, d.reason = other, "A newer tick of this cron fired at the same moment."
		}
		found = true
	}
}

// queue lets the oldest fire, if nothing runs and nothing waits, and the others
// wait while there is room.
func (t turn) queue(decisions []decision, room int, full string) {
	busy := t.earlier != nil || t.taken || t.waiting > 0
	for i := range decisions {
		d := &decisions[i]
		switch {
		case !d.verdict.Fires():
		case !busy:
			busy, t.taken = true, true
		case t.waiting < room:
			d.verdict, d.reason = cronstore.Queued, t.reason()
			t.waiting++
		default:
			d.verdict, d.reason = cronstore.SkippedOverlap, full
		}
	}
}

// callUp says which queued ticks have their turn, and what becomes of them: one
// when nothing runs, all where runs may overlap now, and none while the cron is
// paused. Those of a cron that was removed do not fire any more.
func callUp(spec *cronstore.Spec, now time.Time, queue []cronstore.Tick, earlier *run, paused, removed bool) []cronstore.Tick {
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
	called := make([]cronstore.Tick, len(queue))
	for i, row := range queue {
		row.Verdict, row.Reason = cronstore.Fired, fmt.Sprintf("It waited %s for its turn.", now.Sub(row.Tick).Round(time.Millisecond))
		if removed {
			row.Verdict, row.Reason = cronstore.SkippedExcluded, "The cron was removed before this tick had its turn."
		}
		called[i] = row
	}
	return called
}
