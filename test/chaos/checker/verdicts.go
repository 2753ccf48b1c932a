package checker

import (
	"slices"
	"time"
)

const (
	// onTime is how late a tick may be decided and still count as on time.
	onTime = time.Minute
	// undecided is how long a decision may stand before it is written: the
	// server ends a transaction that pauses for a lease. What is late by no
	// more than this beyond a bound may be on either side of it.
	undecided = 15 * time.Second
)

// moment is how late a tick can have been when it was decided.
type moment struct{ least, most time.Duration }

// late bounds the lateness, which counts from the jittered instant. What is written
// soon after the clock was set may have been decided before.
func (c *check) late(cron *Cron, t *tick) moment {
	written := t.first().At
	late := moment{written.Sub(t.at) - cron.Jitter - undecided, written.Sub(t.at)}
	for _, leap := range c.leapsBefore(written) {
		late.least -= max(0, leap.By)
		late.most += max(0, -leap.By)
	}
	return late
}

// leapsBefore are those after which what was decided before may have been written.
func (c *check) leapsBefore(written time.Time) []Leap {
	return slices.DeleteFunc(slices.Clone(c.Leaps), func(leap Leap) bool {
		return written.Before(leap.At) || !written.Before(leap.At.Add(undecided))
	})
}

func (m moment) surelyWithin(bound time.Duration) bool { return m.most <= bound }
func (m moment) surelyBeyond(bound time.Duration) bool { return m.least > bound }

// checkVerdicts judges what was decided about each tick of a cron by itself, and
// then what was decided together.
func (c *check) checkVerdicts(cron *Cron, ticks []tick) {
	for i := range ticks {
		t := &ticks[i]
		if c.late(cron, t).most < 0 {
			c.find(Early, cron.Name, t.at, "was recorded at %s", t.first().At.UTC().Format(time.RFC3339Nano))
		}
		c.checkVerdict(cron, t)
		c.checkChanges(cron, t)
	}
	for _, batch := range decidedTogether(ticks) {
		c.checkQuota(cron, batch)
	}
}

// decidedTogether returns the ticks in batches, in the order of their first ticks. A batch is what
// one transaction decided, or several if it could not examine all ticks that were due: the
// transactions before the last one leave the ticks to catch up to those that follow.
func decidedTogether(ticks []tick) (batches [][]tick) {
	place := map[int64]int{} // of a transaction among the batches
	for _, t := range ticks {
		if t.first().Verdict == Triggered {
			continue // the policies are not asked
		}
		i, known := place[t.first().Txid]
		if !known {
			if i = len(batches) - 1; i < 0 || !leavesCatchUp(batches[i]) {
				batches, i = append(batches, nil), i+1
			}
			place[t.first().Txid] = i
		}
		batches[i] = append(batches[i], t)
	}
	return batches
}

// leavesCatchUp says that missed ticks were skipped for newer ones, of which the batch has none.
func leavesCatchUp(batch []tick) bool {
	skipped := false
	for i := range batch {
		switch batch[i].first().Verdict {
		case CaughtUp:
			return false
		case SkippedLimit:
			skipped = true
		}
	}
	return skipped
}

func (c *check) checkVerdict(cron *Cron, t *tick) {
	late, verdict := c.late(cron, t), t.first().Verdict
	if verdict == Triggered {
		return // the policies are not asked
	}
	if cron.Excluded != nil && cron.Excluded.Covers(t.at) {
		if verdict != SkippedExcluded {
			c.find(WrongVerdict, cron.Name, t.at, "is excluded and was decided as %s", verdict)
		}
		return
	}
	if verdict == Fired && late.surelyBeyond(onTime) {
		c.find(Late, cron.Name, t.at, "counts as fired on time, and was %s late", late.most)
		return
	}
	if !slices.Contains(cron.allowed(late), verdict) {
		c.find(WrongVerdict, cron.Name, t.at, "was decided as %s, %s late, with overlap %s and catch_up %s within %s (%s)",
			verdict, late.most, cron.Overlap, cron.CatchUp, cron.Window, t.row.Reason)
	}
}

// allowed lists the verdicts that a tick may have that is not excluded.
func (c *Cron) allowed(late moment) []string {
	var verdicts []string
	if !late.surelyBeyond(onTime) {
		verdicts = append(verdicts, Fired)
	}
	if !late.surelyWithin(onTime) {
		if c.CatchUp == CatchUpNone || !late.surelyWithin(c.Window) {
			verdicts = append(verdicts, SkippedWindow)
		}
		if c.CatchUp != CatchUpNone && !late.surelyBeyond(c.Window) {
			verdicts = append(verdicts, CaughtUp, SkippedLimit)
		}
	}
	if !slices.Contains(verdicts, Fired) && !slices.Contains(verdicts, CaughtUp) {
		return verdicts // the overlap policy is not asked
	}
	switch c.Overlap {
	case OverlapSkip:
		verdicts = append(verdicts, SkippedOverlap)
	case OverlapQueue, OverlapQueueAll:
		verdicts = append(verdicts, SkippedOverlap, Queued)
	case OverlapReplace:
		verdicts = append(verdicts, Replaced)
	case OverlapReplaceWaiting:
		verdicts = append(verdicts, Replaced, SkippedOverlap)
	}
	return verdicts
}

// checkChanges judges what became of the tick after the decision.
func (c *check) checkChanges(cron *Cron, t *tick) {
	for i := 1; i < len(t.entries); i++ {
		from, to := t.entries[i-1].Verdict, t.entries[i].Verdict
		switch {
		case from == to:
		case from == Queued && to == Fired:
		case !fires(from) && from != Queued && to == Triggered:
		case (from == Fired || from == CaughtUp) && to == Replaced && (cron.Overlap == OverlapReplace || cron.Overlap == OverlapReplaceWaiting):
		default:
			c.find(WrongVerdict, cron.Name, t.at, "went from %s to %s", from, to)
		}
	}
	if t.row.Verdict == Queued {
		c.find(Lost, cron.Name, t.at, "waited for its turn and never had it")
	}
}

// quota is how many missed ticks that are found together may be caught up.
func (c *Cron) quota() int {
	switch c.CatchUp {
	case CatchUpNone:
		return 0
	case CatchUpLatest:
		return 1
	default:
		return c.Limit
	}
}

// checkQuota demands that of the ticks that were missed together the newest were
// taken, as many as the policy allows. Where the overlap policy objected to some
// it cannot be seen which were taken, so only too many can.
func (c *check) checkQuota(cron *Cron, batch []tick) {
	taken, refused := 0, time.Time{} // refused: the newest beyond the quota
	for _, t := range slices.Backward(batch) {
		switch t.first().Verdict {
		case CaughtUp:
			taken++
			if !refused.IsZero() {
				c.find(WrongVerdict, cron.Name, t.at, "was caught up, and the newer tick %s was not", refused.UTC().Format(time.RFC3339))
			}
		case SkippedLimit:
			if refused.IsZero() {
				refused = t.at
			}
		}
	}
	if taken > cron.quota() {
		c.find(WrongVerdict, cron.Name, batch[0].at, "%d ticks were caught up together; the limit is %d", taken, cron.quota())
	}
	if !refused.IsZero() && taken < cron.quota() && cron.Overlap == OverlapAllow {
		c.find(WrongVerdict, cron.Name, refused, "is beyond the limit of %d, and only %d were caught up", cron.quota(), taken)
	}
}
