package main

import (
	"slices"
	"time"
)

const (
	// scheduler is the role in whose name ticks are recorded.
	scheduler = "scheduler"
	// refresh is how often a leader renews its lease, by default.
	refresh = 750 * time.Millisecond
	// onTime is how late a tick, done how late the end of a job may be and count as
	// normal.
	onTime = 2 * time.Second
	done   = 5 * time.Second
	// silent is how long a leader that is well does not go without a renewal.
	silent = 2 * time.Second
	// working is how long a term has to last to have recorded something.
	working = 10 * time.Second
)

// span is the time of the load, and when the run began and was read.
type span struct{ began, from, to, until time.Time }

// timing is what a run says about time.
type timing struct {
	due      int           // ticks that fell due under the load
	share    float64       // of those of the worst window, recorded within it
	late     quantiles     // of the ticks of the load
	calm     quantiles     // of those before
	terms    int           // of the scheduler that began since the load did
	others   int           // of the other roles
	idle     int           // terms of the scheduler that recorded nothing, though they lasted
	takeover time.Duration // the longest from the beginning of such a term to its first record
	missed   int           // renewals under the load
	silence  time.Duration // the longest between two
	recover  time.Duration // from the load's end until all was normal
	open     int           // ticks due before the end that nobody has recorded
	verdicts map[string]int
}

type quantiles struct{ p50, p99, worst time.Duration }

// judge says what the records, the terms and the jobs of a run tell about time.
func judge(p past, crons int, s span, window time.Duration) timing {
	t := timing{verdicts: map[string]int{}}
	t.due = crons * seconds(s.from, s.to)
	t.share = smallestShare(p.records, crons, s, window)
	var late, calm []time.Duration
	recorded := 0
	for _, r := range p.records {
		switch {
		case r.due.Before(s.began):
		case r.due.Before(s.from):
			calm = append(calm, r.at.Sub(r.due))
		case r.due.Before(s.to):
			late = append(late, r.at.Sub(r.due))
			t.verdicts[r.verdict]++
		}
		if !r.due.Before(s.began) {
			recorded++
		}
	}
	t.late, t.calm = spread(late), spread(calm)
	t.open = crons*seconds(s.began, s.until) - recorded
	t.judgeTerms(p, s)
	t.recover = recovery(p, s)
	return t
}

// seconds counts the whole ones in [from, to).
func seconds(from, to time.Time) int {
	first := func(at time.Time) int64 { return at.Add(time.Second - 1).Unix() }
	return int(max(0, first(to)-first(from)))
}

// smallestShare is of the windows of the load, one beginning each second, the smallest
// share of ticks that fell due in it and were recorded in it. A load that is shorter is
// one window.
func smallestShare(records []record, crons int, s span, window time.Duration) float64 {
	window = min(window, s.to.Sub(s.from))
	smallest := 1.0
	for from := s.from; !from.Add(window).After(s.to); from = from.Add(time.Second) {
		to := from.Add(window)
		inside := 0
		for _, r := range records {
			if !r.due.Before(from) && r.due.Before(to) && r.at.Before(to) {
				inside++
			}
		}
		if due := crons * seconds(from, to); due > 0 {
			smallest = min(smallest, float64(inside)/float64(due))
		}
	}
	return smallest
}

func spread(all []time.Duration) quantiles {
	if len(all) == 0 {
		return quantiles{}
	}
	slices.Sort(all)
	at := func(share float64) time.Duration { return all[int(share*float64(len(all)-1))] }
	return quantiles{at(0.5), at(0.99), at(1)}
}

// judgeTerms follows the changes of the roles' rows.
func (t *timing) judgeTerms(p past, s span) {
	last, current := map[string]change{}, change{}
	for _, c := range p.changes {
		before := last[c.role]
		last[c.role] = c
		if c.node == "" {
			continue
		}
		acquired := c.term != before.term
		if acquired && c.role == scheduler {
			t.judgeTerm(p.records, current, c.at)
			current = c
		}
		if c.at.Before(s.from) || before.term == 0 { // the role's first
			continue
		}
		switch {
		case acquired && c.role == scheduler:
			t.terms++
		case acquired:
			t.others++
		case c.at.Before(s.to):
			gap := c.renewed.Sub(before.renewed)
			t.missed += max(0, int((gap+refresh/2)/refresh)-1)
			t.silence = max(t.silence, gap)
		}
	}
	t.judgeTerm(p.records, current, s.until)
}

// judgeTerm looks for what a term of the scheduler recorded until it ended.
func (t *timing) judgeTerm(records []record, term change, end time.Time) {
	if term.term == 0 {
		return
	}
	first := end
	worked := false
	for _, r := range records {
		if r.term == term.term {
			worked = true
			if r.at.Before(first) {
				first = r.at
			}
		}
	}
	lasted := end.Sub(term.at)
	if worked || lasted >= working {
		t.takeover = max(t.takeover, first.Sub(term.at))
	}
	if !worked && lasted >= working {
		t.idle++
	}
}

// recovery is how long after the load's end the last thing happened that is not
// normal: a tick was recorded or a job came to its end late, a term began, a renewal
// was late. What has not happened yet counts up to the end of the run.
func recovery(p past, s span) time.Duration {
	last := s.to
	note := func(at time.Time) {
		if at.After(last) {
			last = at
		}
	}
	for _, r := range p.records {
		if r.at.Sub(r.due) > onTime {
			note(r.at)
		}
	}
	for _, j := range p.jobs {
		switch {
		case j.ended.IsZero() && s.until.Sub(j.created) > done:
			note(s.until)
		case j.ended.Sub(j.created) > done:
			note(j.ended)
		}
	}
	before := map[string]change{}
	for _, c := range p.changes {
		if c.node != "" && (c.term != before[c.role].term || c.renewed.Sub(before[c.role].renewed) > silent) {
			note(c.at)
		}
		before[c.role] = c
	}
	return last.Sub(s.to)
}
