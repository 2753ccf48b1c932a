package main

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

const (
	// grace is how long a job may wait before it counts as backlog.
	grace = time.Second
	// slower is how many times the p99 of the phase before a system that has recovered may
	// take to start.
	slower = 2
	// calmSeconds on end are a recovery.
	calmSeconds = 3
)

// turn is what one system did.
type turn struct {
	begin, end  time.Time
	jobs, crons int64 // inserted jobs, crons a second
	phases      []phase
	// Starts of jobs, and of the crons' ticks.
	started, ticked stream
}

// stream are the starts of jobs that become due at an even rate: so many at once, each
// period.
type stream struct {
	starts []rig.Start
	// settled are the times at which each was no backlog any more, sorted.
	settled []int64
}

// cadence is how many jobs of a stream are due at once, and how often.
type cadence struct {
	begin  time.Time
	count  int64
	period time.Duration
}

// before counts what is due before an instant.
func (c cadence) before(at time.Time) int64 {
	if !at.After(c.begin) {
		return 0
	}
	return c.count * int64((at.Sub(c.begin)+c.period-1)/c.period)
}

// take replaces the starts.
func (t *turn) take(all []rig.Start) {
	t.started, t.ticked = stream{}, stream{}
	for _, s := range all {
		to := &t.started
		if s.ID == cronID {
			to = &t.ticked
		}
		if s.Due >= t.begin.UnixMicro() {
			to.starts = append(to.starts, s)
			to.settled = append(to.settled, max(s.At, s.Due+grace.Microseconds()))
		}
	}
	slices.Sort(t.started.settled)
	slices.Sort(t.ticked.settled)
}

// lost are the jobs that have not started.
func (t *turn) lost() int64 { return t.jobs - int64(len(t.started.starts)) }

// figures are what a stream was like in a phase.
type figures struct {
	rate     float64 // kept, as a share
	late     []time.Duration
	most     int64 // backlog, at most
	left     int64 // backlog at the end
	p50, p99 float64
}

// judge looks at a stream between two instants. What has not started by the end is late
// by the time until then at least.
func (s *stream) judge(c cadence, from, until, end time.Time) (f figures) {
	var inPhase int64
	for _, start := range s.starts {
		if start.At >= from.UnixMicro() && start.At < until.UnixMicro() {
			inPhase++
		}
		if start.Due >= from.UnixMicro() && start.Due < until.UnixMicro() {
			f.late = append(f.late, time.Duration(start.At-start.Due)*time.Microsecond)
		}
	}
	due := c.before(until) - c.before(from)
	for range due - int64(len(f.late)) {
		f.late = append(f.late, end.Sub(until))
	}
	f.rate = float64(inPhase) / float64(max(due, 1))
	f.p50, f.p99 = rig.Quantile(f.late, 0.5), rig.Quantile(f.late, 0.99)
	for at := from; at.Before(until); at = at.Add(time.Second) {
		f.most = max(f.most, s.backlog(c, at))
	}
	f.left = s.backlog(c, until)
	f.most = max(f.most, f.left)
	return f
}

// backlog counts what is due for a while at an instant and has not started.
func (s *stream) backlog(c cadence, at time.Time) int64 {
	settled, _ := slices.BinarySearch(s.settled, at.UnixMicro()+1)
	return max(0, c.before(at.Add(-grace))-int64(settled))
}

// recovered returns how many seconds after an instant the stream is as it was before, of
// those until another; false if it is not.
func (s *stream) recovered(c cadence, from, until, end time.Time, p99 float64) (seconds int, ok bool) {
	calm := 0
	for n := 0; !from.Add(time.Duration(n+1) * time.Second).After(until); n++ {
		at := from.Add(time.Duration(n) * time.Second)
		f := s.judge(c, at, at.Add(time.Second), end)
		if calm++; f.most > 0 || f.p99 > slower*p99 {
			calm = 0
		}
		if calm == calmSeconds {
			return n + 1 - calmSeconds, true
		}
	}
	return int(until.Sub(from) / time.Second), false
}

func (b options) jobCadence(begin time.Time) cadence {
	return cadence{begin, int64(b.rate / batchesASecond), time.Second / batchesASecond}
}

func (t *turn) cronCadence() cadence { return cadence{t.begin, t.crons, time.Second} }
