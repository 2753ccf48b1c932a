package checker

import (
	"cmp"
	"slices"
	"time"
)

// Run is the beginning or the end of an attempt of a limited job, in the journal. A beginning
// draws its number while the claim has the locks of its key, and an end before its commit. So
// a claim that comes first by the numbers may have counted the attempt, and one that comes later
// than the end was free not to.
type Run struct {
	Seq   int64
	Job   int64
	Kind  string
	Key   string
	Began bool
	// At is the start of the attempt, as forge recorded it. The transaction that wrote this
	// began at From and wrote at To.
	At, From, To time.Time
}

// Rate allows at most Limit starts of jobs of a kind with one key in any window of the length
// Per, both ends included.
type Rate struct {
	Limit int
	Per   time.Duration
}

// checkLimits demands that no more jobs of a kind with one key ran at once than KeyLimits allows.
func (c *check) checkLimits() {
	type of struct{ kind, key string }
	running := map[of]map[int64]bool{}
	for _, run := range c.Runs {
		limit, limited := c.KeyLimits[run.Kind]
		if !limited {
			continue
		}
		jobs := running[of{run.Kind, run.Key}]
		if jobs == nil {
			jobs = map[int64]bool{}
			running[of{run.Kind, run.Key}] = jobs
		}
		if !run.Began {
			delete(jobs, run.Job)
			continue
		}
		jobs[run.Job] = true
		if len(jobs) > limit {
			c.find(OverLimit, "", time.Time{}, "job %d is number %d of key %q to run at once; at most %d may", run.Job, len(jobs), run.Key, limit)
		}
	}
}

// checkRates demands that no more jobs of a kind with one key started in any window than its rate
// allows. Each attempt is a start, also those of lost nodes. The window between a start and the
// one that is Limit places later contains one start too many, so it must be longer than Per.
// Windows in which the clock leaps are not judged.
func (c *check) checkRates() {
	starts := rated(c.History)
	for i := range starts {
		first, ok := earlier(starts, i, c.Rates[starts[i].Kind].Limit)
		if !ok || c.leapt(first.At, starts[i].At) {
			continue
		}
		last, rate := starts[i], c.Rates[starts[i].Kind]
		if within := last.At.Sub(first.At); within <= rate.Per {
			c.find(OverRate, "", time.Time{}, "%d jobs of kind %s and key %q started within %s, from job %d at %s to job %d; at most %d may in %s",
				rate.Limit+1, last.Kind, last.Key, within, first.Job, first.At.UTC().Format(time.RFC3339Nano), last.Job, rate.Limit, rate.Per)
		}
	}
}

// checkStarts demands that the start of each attempt is a time at which the attempt was claimed.
// The rates are judged by these times.
func (c *check) checkStarts() {
	for _, run := range c.Runs {
		if run.Began && (run.At.Before(run.From) || run.At.After(run.To)) && !c.leapt(run.From, run.To) {
			const layout = time.RFC3339Nano
			c.find(WrongStart, "", time.Time{}, "an attempt of job %d was claimed between %s and %s, and says that it began at %s",
				run.Job, run.From.UTC().Format(layout), run.To.UTC().Format(layout), run.At.UTC().Format(layout))
		}
	}
}

// FullWindows counts the starts with which a rate was used up.
func FullWindows(h *History) int {
	starts, full := rated(h), 0
	for i := range starts {
		rate := h.Rates[starts[i].Kind]
		if first, ok := earlier(starts, i, rate.Limit-1); ok && starts[i].At.Sub(first.At) <= rate.Per {
			full++
		}
	}
	return full
}

// rated lists the starts of jobs with a rate: those of one kind and key together, the earliest
// first.
func rated(h *History) []Run {
	starts := slices.DeleteFunc(slices.Clone(h.Runs), func(run Run) bool {
		_, ok := h.Rates[run.Kind]
		return !ok || !run.Began
	})
	slices.SortStableFunc(starts, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key), a.At.Compare(b.At))
	})
	return starts
}

// earlier returns the start that is so many places before the start i of the same kind and key;
// false if there are fewer.
func earlier(starts []Run, i, places int) (Run, bool) {
	if i < places || starts[i-places].Kind != starts[i].Kind || starts[i-places].Key != starts[i].Key {
		return Run{}, false
	}
	return starts[i-places], true
}

// leapt says whether the clock was set between two of its times, or near one of them. A clock that was
// set back shows times a second time.
func (h *History) leapt(from, to time.Time) bool {
	return slices.ContainsFunc(h.Leaps, func(leap Leap) bool {
		first, last := leap.At, leap.At.Add(-leap.By)
		if last.Before(first) {
			first, last = last, first
		}
		return !to.Before(first.Add(-undecided)) && !from.After(last.Add(undecided))
	})
}
