package crons

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

const (
	// onTime is how late a tick may be recorded and still count as fired.
	onTime = time.Minute
	// longRun is how many ticks may be skipped alike and have a row each.
	longRun = 10
	// sliceTicks bounds the ticks of one cron that one transaction settles.
	sliceTicks = 20_000
	// leastSlice is how many it looks at beyond those that may be caught up.
	leastSlice = 1000
)

// Values of the policies of a cron.
const (
	catchUpNone     = "none"
	catchUpLatest   = "latest"
	overlapAllow    = "allow"
	overlapQueue    = "queue"
	overlapQueueAll = "queue_all"
	overlapReplace  = "replace"
	// overlapReplaceWaiting replaces runs that have not started, and skips the
	// tick while one has.
	overlapReplaceWaiting = "replace_waiting"
)

// decision is what becomes of one due tick.
type decision struct {
	at      time.Time
	firesAt time.Time
	verdict cronstore.Verdict
	reason  string
}

// sliceLimit is how many ticks of a cron are looked at in one transaction that may
// look at most at so many: more than twice as many as it may catch up, so that each
// slice settles some.
func sliceLimit(spec *cronstore.Spec, most int) int {
	return max(min(sliceTicks, most), 2*quota(spec)+leastSlice)
}

// quota is how many missed ticks may be caught up.
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

// decide says what becomes of the due ticks of one cron, given in order. With
// more set, further ticks are due after them: the newest ones, which those might
// yet push out of the quota, stay undecided, and decide returns fewer decisions
// than ticks. The turn is what the overlap policy has to look at.
func decide(spec *cronstore.Spec, now time.Time, due []cronstore.Due, more bool, t turn) []decision {
	j := judge{spec: spec, now: now, quota: quota(spec)}
	if more {
		due = due[:j.undecidedFrom(due)]
		j.missed = j.quota
	}
	decisions := make([]decision, len(due))
	for i := len(due) - 1; i >= 0; i-- { // the freshest first
		verdict, reason := j.judge(due[i])
		decisions[i] = decision{due[i].At, due[i].FiresAt, verdict, reason}
	}
	t.apply(spec.Overlap, decisions)
	return decisions
}

// judge goes through the ticks of one cron from the newest to the oldest.
type judge struct {
	spec   *cronstore.Spec
	now    time.Time
	quota  int
	missed int // so far, of those that could be caught up
}

// undecidedFrom returns the index from which on later ticks matter: those could
// take the place of the newest ones that might be caught up.
func (j *judge) undecidedFrom(due []cronstore.Due) int {
	cut, left := len(due), j.quota
	for i := len(due) - 1; i >= 0 && left > 0; i-- {
		if j.couldCatchUp(due[i]) {
			cut, left = i, left-1
		}
	}
	return cut
}

func (j *judge) couldCatchUp(tick cronstore.Due) bool {
	late := j.now.Sub(tick.FiresAt)
	return !tick.SkippedDST && !tick.Paused && !tick.Removed && tick.Excluded == "" && late > onTime && late <= j.spec.CatchUpSpan.Std()
}

func (j *judge) judge(tick cronstore.Due) (cronstore.Verdict, string) {
	switch {
	case tick.SkippedDST:
		return cronstore.SkippedDST, "Daylight saving leaves this local time out."
	case tick.Paused:
		return cronstore.SkippedPaused, "The cron was paused."
	case tick.Removed:
		return cronstore.SkippedExcluded, "The cron was removed before this tick could fire."
	case tick.Excluded != "":
		return cronstore.SkippedExcluded, fmt.Sprintf("It is excluded by %q.", tick.Excluded)
	case j.now.Sub(tick.FiresAt) <= onTime:
		return cronstore.Fired, ""
	default:
		return j.judgeMissed(tick)
	}
}

func (j *judge) judgeMissed(tick cronstore.Due) (cronstore.Verdict, string) {
	late := j.now.Sub(tick.FiresAt)
	missed := "No scheduler could fire it"
	if tick.Unconfigured {
		missed = "The cron was not in the configuration then, and did not come back"
	}
	switch {
	case j.spec.CatchUp == catchUpNone:
		return cronstore.SkippedWindow, missed + " within a minute, and catch_up is none."
	case late > j.spec.CatchUpSpan.Std():
		return cronstore.SkippedWindow, fmt.Sprintf("%s within catch_up_window (%s).", missed, j.spec.CatchUpSpan)
	case j.missed >= j.quota && j.quota == 1 && j.spec.CatchUp != "all":
		return cronstore.SkippedLimit, "A newer tick was missed too, and catch_up is latest."
	case j.missed >= j.quota:
		return cronstore.SkippedLimit, fmt.Sprintf("Enough newer ticks were missed too: catch_up_limit is %d.", j.quota)
	}
	j.missed++
	return cronstore.CaughtUp, fmt.Sprintf("%s in time; it was caught up %s late.", missed, late.Round(time.Second))
}

// merge turns decisions into rows of the ledger: a long run of ticks that were
// skipped alike becomes one.
func merge(cron string, decisions []decision) []cronstore.Tick {
	var rows []cronstore.Tick
	for start := 0; start < len(decisions); {
		end := start + 1
		for end < len(decisions) && alike(decisions[start], decisions[end]) {
			end++
		}
		if end-start > longRun {
			row := newRow(cron, decisions[start])
			row.LastTick, row.Count = decisions[end-1].at, int64(end-start)
			rows = append(rows, row)
		} else {
			for _, d := range decisions[start:end] {
				rows = append(rows, newRow(cron, d))
			}
		}
		start = end
	}
	return rows
}

func alike(a, b decision) bool {
	return !a.verdict.Fires() && a.verdict != cronstore.Queued && a.verdict == b.verdict && a.reason == b.reason
}

func newRow(cron string, d decision) cronstore.Tick {
	return cronstore.Tick{Cron: cron, Tick: d.at, Verdict: d.verdict, Reason: d.reason, Count: 1, FiresAt: d.firesAt}
}
