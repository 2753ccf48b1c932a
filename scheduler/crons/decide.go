package crons

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

const (
	// onTime is how late a tick may be recorded and still count as fired on time.
	onTime = time.Minute
	// maxSeparateRows is how many consecutive ticks with the same skip verdict get a row
	// each. A longer sequence becomes one row.
	maxSeparateRows = 10
	// sliceTicks is the maximum number of ticks of one cron that one transaction settles.
	sliceTicks = 20_000
	// minSliceTicks is the number of ticks in a slice besides those that may be caught
	// up.
	minSliceTicks = 1000
)

// Values of the catch-up and overlap policies.
const (
	catchUpNone     = "none"
	catchUpLatest   = "latest"
	overlapAllow    = "allow"
	overlapQueue    = "queue"
	overlapQueueAll = "queue_all"
	overlapReplace  = "replace"
	// overlapReplaceWaiting replaces runs that have not started. It skips the tick if a
	// run has started.
	overlapReplaceWaiting = "replace_waiting"
)

// sliceLimit returns how many ticks of a cron one transaction examines if it may examine
// at most maxTicks. The limit is more than twice the cron's catch-up quota, so each slice
// settles some ticks.
func sliceLimit(spec *cronstore.Spec, maxTicks int) int {
	return max(min(sliceTicks, maxTicks), 2*quota(spec)+minSliceTicks)
}

// quota returns how many missed ticks may be caught up.
func quota(spec *cronstore.Spec) int {
	switch spec.CatchUp {
	case catchUpNone:
		return 0
	case catchUpLatest, "":
		return 1
	default:
		return spec.CatchUpMax
	}
}

// decide returns the due ticks of one cron, which are given in order, with their verdicts. If
// more is set, later ticks are due too. They may push the newest ticks of this slice out
// of the quota, so decide leaves those undecided and returns fewer ticks.
// state is the input of the overlap policy.
func decide(spec *cronstore.Spec, now time.Time, due []cronstore.Due, more bool, state overlapState) []cronstore.Tick {
	e := evaluator{spec: spec, now: now, quota: quota(spec)}
	if more {
		due = due[:e.undecidedFrom(due)]
		e.missed = e.quota
	}
	decisions := make([]cronstore.Tick, len(due))
	for i := len(due) - 1; i >= 0; i-- { // newest first
		verdict, reason := e.verdict(due[i])
		decisions[i] = cronstore.Tick{Tick: due[i].At, Verdict: verdict, Reason: reason, Count: 1, FiresAt: due[i].FiresAt}
	}
	state.apply(spec.Overlap, decisions)
	return decisions
}

// evaluator assigns verdicts to the ticks of one cron, from the newest to the oldest.
type evaluator struct {
	spec   *cronstore.Spec
	now    time.Time
	quota  int
	missed int // number of ticks so far that could be caught up
}

// undecidedFrom returns the index of the first tick whose verdict depends on later ticks:
// the later ticks may use up the catch-up quota.
func (e *evaluator) undecidedFrom(due []cronstore.Due) int {
	cut, left := len(due), e.quota
	for i := len(due) - 1; i >= 0 && left > 0; i-- {
		if e.couldCatchUp(due[i]) {
			cut, left = i, left-1
		}
	}
	return cut
}

func (e *evaluator) couldCatchUp(tick cronstore.Due) bool {
	late := e.now.Sub(tick.FiresAt)
	return !tick.SkippedDST && !tick.Paused && !tick.Removed && tick.Excluded == "" && late > onTime && late <= e.spec.CatchUpSpan.Std()
}

func (e *evaluator) verdict(tick cronstore.Due) (cronstore.Verdict, string) {
	switch {
	case tick.SkippedDST:
		return cronstore.SkippedDST, "Daylight saving time skips this local time."
	case tick.Paused:
		return cronstore.SkippedPaused, "The cron was paused."
	case tick.Removed:
		return cronstore.SkippedExcluded, "The cron was removed before this tick could fire."
	case tick.Excluded != "":
		return cronstore.SkippedExcluded, fmt.Sprintf("It is excluded by %q.", tick.Excluded)
	case e.now.Sub(tick.FiresAt) <= onTime:
		return cronstore.Fired, ""
	default:
		return e.verdictOfMissed(tick)
	}
}

func (e *evaluator) verdictOfMissed(tick cronstore.Due) (cronstore.Verdict, string) {
	late := e.now.Sub(tick.FiresAt)
	missed := "No scheduler could fire it"
	if tick.Unconfigured {
		missed = "The cron was not in the configuration then, and did not come back"
	}
	switch {
	case e.spec.CatchUp == catchUpNone:
		return cronstore.SkippedWindow, missed + " within a minute, and catch_up is none."
	case late > e.spec.CatchUpSpan.Std():
		return cronstore.SkippedWindow, fmt.Sprintf("%s within catch_up_window (%s).", missed, e.spec.CatchUpSpan)
	case e.missed >= e.quota && e.quota == 1 && e.spec.CatchUp != "all":
		return cronstore.SkippedLimit, "A newer tick was missed too, and catch_up is latest."
	case e.missed >= e.quota:
		return cronstore.SkippedLimit, fmt.Sprintf("Enough newer ticks were missed too: catch_up_limit is %d.", e.quota)
	}
	e.missed++
	return cronstore.CaughtUp, fmt.Sprintf("%s in time; it was caught up %s late.", missed, late.Round(time.Second))
}

// merge returns the ledger rows of a cron's decided ticks. It combines a long sequence of
// ticks that were skipped for the same reason into one row.
func merge(cron string, decisions []cronstore.Tick) []cronstore.Tick {
	var rows []cronstore.Tick
	for start := 0; start < len(decisions); {
		end := start + 1
		for end < len(decisions) && sameSkip(decisions[start], decisions[end]) {
			end++
		}
		own := decisions[start:end]
		if end-start > maxSeparateRows {
			own[0].LastTick, own[0].Count = decisions[end-1].Tick, int64(end-start)
			own = own[:1]
		}
		rows = append(rows, own...)
		start = end
	}
	for i := range rows {
		rows[i].Cron = cron
	}
	return rows
}

func sameSkip(a, b cronstore.Tick) bool {
	return !a.Verdict.Fires() && a.Verdict != cronstore.Queued && a.Verdict == b.Verdict && a.Reason == b.Reason
}
