package crons

import "time"

const (
	// minCrowd is how many crons make a crowd: what each of them takes is measured, and
	// reckoned with.
	minCrowd = 20
	// minBunch is how many crons must be due at one instant, or within bunchSpan, to be
	// prepared before it. Fewer are written faster than it takes to wait for them in
	// order.
	minBunch = 3
	// bunchSpan is how long a tick may wait for those right after it, to be committed
	// with them: so crons that are spread by jitter share transactions.
	bunchSpan = 10 * time.Millisecond
	// maxLead is the longest before its instant that a crowd is prepared. So long
	// may whoever pauses or edits one of these crons have to wait.
	maxLead = 2 * time.Second
	// leastLead covers the round trips, however few the crons; mostLead is what they
	// are taken for at most, on a busy server.
	leastLead = 5 * time.Millisecond
	mostLead  = 40 * time.Millisecond
	// mostOverhead is how slow round trips may be for crowds to be prepared ahead: where
	// a transaction needs longer than this for nothing else, all of the time is needed
	// for what is due already.
	mostOverhead = 500 * time.Millisecond
	// spare is how much longer than it took before is planned for, in percent.
	spare = 150
	// firstPace is what a cron is taken to cost until that was measured.
	firstPace = 100 * time.Microsecond
)

// pace is how long it takes to prepare crons, as measured: means that forget.
type pace struct {
	base time.Duration // the round trips
	each time.Duration // a cron of a crowd
	// suspended: nothing is prepared before it is due.
	suspended bool
}

// suspend has crowds wait until they are due, or not any more.
func (p *pace) suspend(slow bool) { p.suspended = slow }

// observe takes in how long n crons took.
func (p *pace) observe(n int, took time.Duration) {
	if n < minCrowd {
		p.base = min((3*p.trips()+took)/4, mostLead)
		return
	}
	p.each = max((3*p.current()+max(took-p.trips(), 0)/time.Duration(n))/4, time.Microsecond)
}

func (p *pace) current() time.Duration {
	if p.each == 0 {
		return firstPace
	}
	return p.each
}

func (p *pace) trips() time.Duration { return max(p.base, leastLead) }

// lead is how long before its instant to begin with a crowd of n.
func (p *pace) lead(n int) time.Duration {
	return min(p.trips()+time.Duration(n)*p.current()*spare/100, maxLead)
}

// most is the largest crowd to plan for, which has a lead of no more than maxLead.
func (p *pace) most() int { return max(0, int((maxLead-p.trips())*100/(spare*p.current()))) }

// fit is how many crons of a crowd can be prepared within a time. It does without the
// spare: a leader that begins a little late still takes the whole crowd, and leaves
// no few behind for a transaction of their own after the instant.
func (p *pace) fit(within time.Duration) int {
	return max(0, int((within-p.trips())/p.current()))
}
