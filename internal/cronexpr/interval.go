package cronexpr

import (
	"iter"
	"time"
)

// The transitions of these years represent all years: the rules of a zone repeat.
var (
	sampleStart = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	sampleEnd   = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
)

// MinInterval returns a lower bound of the distance between two consecutive ticks,
// daylight saving included: 23h for a daily cron in a zone that has it. It covers the
// zone's rules since 2020. It returns Forever when there are fewer than two ticks.
func (s *Schedule) MinInterval() time.Duration {
	switch s.kind {
	case everyKind:
		return time.Duration(s.every) * time.Second
	case atKind, manualKind:
		return Forever
	case calendarKind:
	}
	shortest := s.calendar.minInterval()
	change := s.largestChange()
	if shortest == 1 || change == 0 {
		return time.Duration(shortest) * time.Second
	}
	bound := shortest
	if shortest > change {
		// A change moves a tick relative to its neighbour by at most the size of the
		// change.
		bound -= change
	}
	if shortest <= change || s.wildcard || s.dstRepeated == Both {
		bound = min(bound, s.minAroundChanges(change+min(shortest, change)))
	}
	return time.Duration(bound) * time.Second
}

// minInterval returns the shortest distance on the wall clock, in seconds.
func (c *calendar) minInterval() int64 {
	first, _ := c.nextOfDay(0)
	last, shortest := first, daySeconds
	for at, ok := c.nextOfDay(first + 1); ok && shortest > 1; at, ok = c.nextOfDay(at + 1) {
		shortest = min(shortest, at-last)
		last = at
	}
	overnight := c.minDays()*daySeconds - int64(last-first)
	if last == first {
		return overnight
	}
	return min(int64(shortest), overnight)
}

// minDays returns the smallest number of days from one matching day to the next. Within
// 28 years every kind of year follows every other.
func (c *calendar) minDays() int64 {
	const years = 28
	start := month{2000, time.January}.start()
	end := month{2000 + years, time.December}.next().start()
	least := int64(years * 365)
	last, ok := c.nextDay(start)
	for ok && last < end && least > 1 {
		var day int64
		if day, ok = c.nextDay(last + daySeconds); ok {
			least = min(least, (day-last)/daySeconds)
		}
		last = day
	}
	return least
}

// largestChange returns the largest change of the zone's offset, in seconds. The sampled
// years contain no move across the date line.
func (s *Schedule) largestChange() int64 {
	var largest int64
	for before, after := range transitions(s.zone, sampleStart, sampleEnd) {
		largest = max(largest, after.offset-before.offset, before.offset-after.offset)
	}
	return largest
}

// minAroundChanges returns the shortest distance of ticks within reach of a change of the
// zone, on any day: there ticks are closest to each other, or repeated.
func (s *Schedule) minAroundChanges(reach int64) int64 {
	daily := *s
	daily.calendar.month = 1<<13 - 2
	daily.calendar.dom = monthDays{days: ^uint32(0)}
	daily.calendar.dow = weekDays{days: 1<<7 - 1}
	shortest := int64(daySeconds)
	for _, after := range transitions(s.zone, sampleStart, sampleEnd) {
		last := int64(beginningOfTime)
		next := daily.stepper()
		for at := after.start - reach; ; {
			tick, ok := next(at)
			if !ok || tick.unix > after.start+reach {
				break
			}
			shortest = min(shortest, tick.unix-last)
			at, last = tick.unix, tick.unix
		}
	}
	return shortest
}

// transitions yields the segments before and after each change of a zone's
// offset in [from, until).
func transitions(zone *time.Location, from, until int64) iter.Seq2[segment, segment] {
	return func(yield func(before, after segment) bool) {
		before := segmentAt(zone, from)
		for before.end < until {
			after := segmentAt(zone, before.end)
			if after.offset != before.offset && !yield(before, after) {
				return
			}
			before = after
		}
	}
}
