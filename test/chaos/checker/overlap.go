package checker

import (
	"cmp"
	"slices"
	"time"
)

// unseen is how long the end of a run may have been written and not been
// committed.
const unseen = 2 * time.Second

// firing is a run that began, by the ledger.
type firing struct {
	tick
	entry Entry
	end   time.Time // zero: not yet
	seq   int64     // of the end in the journal; 0: it is not known
}

// activeAt says whether the run had not ended when something else was written. The
// journal's order is exact, its times are those of a clock that may be set.
func (f *firing) activeAt(other Entry) bool {
	if f.end.IsZero() {
		return true
	}
	if f.seq != 0 {
		return f.seq > other.Seq
	}
	return f.end.After(other.At)
}

// waiting is the time that a tick spent in the queue.
type waiting struct {
	tick
	from, to Entry // to is zero where it still waits
}

// timeline is what a cron did, in the order of the journal.
type timeline struct {
	firings []firing
	queue   []waiting
}

func (c *check) timeline(ticks []tick) timeline {
	var line timeline
	for _, t := range ticks {
		if entry, ok := t.fired(); ok {
			end, seq := c.endOf(t.row.JobID)
			line.firings = append(line.firings, firing{t, entry, end, seq})
		}
		if t.first().Verdict == Queued {
			w := waiting{tick: t, from: t.first()}
			if len(t.entries) > 1 {
				w.to = t.entries[1]
			}
			line.queue = append(line.queue, w)
		}
	}
	slices.SortFunc(line.firings, func(a, b firing) int { return cmp.Compare(a.entry.Seq, b.entry.Seq) })
	slices.SortFunc(line.queue, func(a, b waiting) int { return cmp.Compare(a.to.Seq, b.to.Seq) })
	return line
}

func (c *check) endOf(job int64) (at time.Time, seq int64) {
	if found := c.jobs[job]; found != nil {
		return found.Ended, found.EndedSeq
	}
	return time.Time{}, 0
}

// checkOverlap judges what the overlap policy did.
func (c *check) checkOverlap(cron *Cron, ticks []tick) {
	line := c.timeline(ticks)
	for i, run := range line.firings {
		for _, earlier := range line.firings[:i] {
			if earlier.activeAt(run.entry) {
				c.checkMeeting(cron, earlier, run)
			}
		}
	}
	c.checkQueue(cron, line)
	for i := range ticks {
		t := &ticks[i]
		if t.first().Verdict == SkippedOverlap && !line.hindered(t) && len(c.leapsBefore(t.first().At)) == 0 {
			c.find(WrongVerdict, cron.Name, t.at, "was skipped, and no earlier run was active (%s)", t.row.Reason)
		}
		for _, entry := range t.entries {
			if entry.Verdict == Replaced && !line.firedWith(t, entry) {
				c.find(WrongVerdict, cron.Name, t.at, "was replaced, and no tick took its place")
			}
		}
	}
}

// checkMeeting judges a run that began while an earlier one was active.
func (c *check) checkMeeting(cron *Cron, earlier, run firing) {
	switch cron.Overlap {
	case OverlapAllow:
	case OverlapReplace, OverlapReplaceWaiting:
		if earlier.row.Verdict != Replaced {
			c.find(Overlap, cron.Name, run.at, "fired while job %d of the tick %s was active, and did not replace it",
				earlier.row.JobID, earlier.at.UTC().Format(time.TimeOnly))
		}
	default:
		c.find(Overlap, cron.Name, run.at, "fired at %s while job %d of the tick %s was active (until %s)",
			run.entry.At.UTC().Format(time.RFC3339Nano), earlier.row.JobID, earlier.at.UTC().Format(time.TimeOnly), earlier.end.UTC().Format(time.RFC3339Nano))
	}
}

// checkQueue demands that the oldest has its turn first, that nobody passes the
// queue, and that it is no longer than the policy allows.
func (c *check) checkQueue(cron *Cron, line timeline) {
	for i, w := range line.queue {
		if i > 0 && w.at.Before(line.queue[i-1].at) {
			c.find(WrongVerdict, cron.Name, w.at, "had its turn after the younger tick %s", line.queue[i-1].at.UTC().Format(time.TimeOnly))
		}
		for _, run := range line.firings {
			if run.first().Verdict != Queued && w.waitedAt(run.entry) {
				c.find(WrongVerdict, cron.Name, run.at, "fired at once while the tick %s waited", w.at.UTC().Format(time.TimeOnly))
			}
		}
		for _, other := range line.queue {
			if cron.Overlap == OverlapQueue && w.waitedAt(other.from) {
				c.find(WrongVerdict, cron.Name, other.at, "was queued while the tick %s waited", w.at.UTC().Format(time.TimeOnly))
			}
		}
	}
}

// waitedAt says whether the tick waited when something else was written. Within
// one transaction the turns come first, whatever the order of the rows.
func (w *waiting) waitedAt(other Entry) bool {
	return w.from.Seq < other.Seq && other.Seq < w.to.Seq && other.Txid != w.to.Txid && other.Txid != w.from.Txid
}

// hindered says whether an earlier run, a tick in the queue or one of the same
// moment stood in the way of a tick. When it was looked at is known only to lie
// between the tick and its entry.
func (line *timeline) hindered(t *tick) bool {
	for _, run := range line.firings {
		if run.entry.Seq < t.first().Seq && (run.end.IsZero() || !run.end.Add(unseen).Before(t.at)) {
			return true
		}
	}
	for _, w := range line.queue {
		if w.from.Seq < t.first().Seq && (w.to.Seq == 0 || !w.to.At.Before(t.at)) {
			return true
		}
	}
	return line.firedWith(t, t.first()) || line.queuedWith(t)
}

// firedWith says whether another tick fired in the transaction of an entry.
func (line *timeline) firedWith(t *tick, entry Entry) bool {
	return slices.ContainsFunc(line.firings, func(run firing) bool {
		return run.entry.Txid == entry.Txid && !run.at.Equal(t.at)
	})
}

func (line *timeline) queuedWith(t *tick) bool {
	return slices.ContainsFunc(line.queue, func(w waiting) bool { return w.from.Txid == t.first().Txid })
}
