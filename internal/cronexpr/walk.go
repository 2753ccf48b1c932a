package cronexpr

import (
	"math"
	"time"
)

// segment is a stretch of constant UTC offset: [start, end) in Unix seconds.
type segment struct {
	start, end int64
	offset     int64
}

// The ends of the first and the last segment of a zone.
const (
	beginningOfTime = math.MinInt64 / 2
	endOfTime       = math.MaxInt64 / 2
)

// segmentAt returns the segment that holds an instant.
func segmentAt(zone *time.Location, unix int64) segment {
	t := time.Unix(unix, 0).In(zone)
	_, offset := t.Zone()
	s := segment{start: beginningOfTime, end: endOfTime, offset: int64(offset)}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		s.start = min(start.Unix(), unix)
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	if s.end <= unix {
		// Beyond the table of transitions Go ends the segments at the turn of the year,
		// and counts 365 days in leap years too: on 31 December the end is not after t.
		// Any end before the next transition is sufficient.
		s.end = unix + hourSeconds
	}
	return s
}

// longestReplay is the longest gap whose fixed-time ticks are made up for.
const longestReplay = 3 * hourSeconds

// maxOffsetChange is larger than the difference of any two offsets of a zone (the date
// line makes it a day), and so larger than any step of the wall clock backwards.
const maxOffsetChange = 2 * daySeconds

// walk finds the ticks of a calendar schedule, segment by segment.
type walk struct {
	schedule *Schedule
	// seg holds the instant last passed to moveTo; prev ends where seg starts.
	prev, seg segment
}

// moveTo makes seg the segment that holds an instant.
func (w *walk) moveTo(unix int64) {
	if w.seg.start <= unix && unix < w.seg.end {
		return
	}
	zone := w.schedule.zone
	previous := w.seg
	w.seg = segmentAt(zone, unix)
	switch {
	case w.seg.start == beginningOfTime:
		w.prev = w.seg
	case previous.start < previous.end && previous.end == w.seg.start:
		w.prev = previous
	default:
		w.prev = segmentAt(zone, w.seg.start-1)
	}
}

// next returns the first tick strictly after an instant.
func (w *walk) next(after int64) (instant, bool) {
	s := w.schedule
	for at := after + 1; at <= lastSecond; {
		w.moveTo(at)
		if tick, ok := w.first(at); ok {
			return tick, true
		}
		// No match on the wall clock is due before this, even if the clock is set back:
		// skip the segments that cannot contain one.
		civil, ok := s.calendar.next(w.seg.end + w.seg.offset - maxOffsetChange)
		if !ok {
			break
		}
		at = max(w.seg.end, civil-maxOffsetChange)
	}
	return instant{}, false
}

// first returns the first tick of seg at or after an instant in it.
func (w *walk) first(at int64) (instant, bool) {
	regular, isRegular := w.regular(at)
	moved, isMoved := w.moved(at)
	// A tick that fires comes before one that is skipped at the same instant.
	if isMoved && (!isRegular || moved.unix < regular) {
		return moved, true
	}
	return instant{unix: regular}, isRegular
}

// regular finds the first matching time of the wall clock in seg.
func (w *walk) regular(at int64) (int64, bool) {
	s, seg := w.schedule, w.seg
	low, high := at, seg.end
	if !s.wildcard && s.dstRepeated == First {
		// Leave out the times that the wall clock showed before it was set back.
		low = max(low, seg.start+w.prev.offset-seg.offset)
	}
	if low >= high {
		return 0, false
	}
	civil, ok := s.calendar.next(low + seg.offset)
	unix := civil - seg.offset
	if !ok || unix >= high {
		return 0, false
	}
	if !s.wildcard && s.dstRepeated == Last && unix > high-maxOffsetChange && high != endOfTime {
		// Leave out the times that the wall clock will show again.
		back := seg.offset - segmentAt(s.zone, seg.end).offset
		return unix, unix < high-back
	}
	return unix, true
}

// moved finds the first tick that the gap at the start of seg moves into seg.
func (w *walk) moved(at int64) (instant, bool) {
	s, seg := w.schedule, w.seg
	gap := seg.offset - w.prev.offset
	if s.wildcard || gap <= 0 || gap > longestReplay || at >= seg.start+gap {
		return instant{}, false
	}
	if s.dstMissing != Shift && at > seg.start {
		return instant{}, false
	}
	// In civil time the gap is [start+prev.offset, start+seg.offset). With shift, a tick
	// in it keeps the instant that the old offset gives it.
	civil, ok := s.calendar.next(at + w.prev.offset)
	if !ok || civil >= seg.start+seg.offset {
		return instant{}, false
	}
	if s.dstMissing == Shift {
		return instant{unix: civil - w.prev.offset}, true
	}
	return instant{unix: seg.start, skipped: s.dstMissing == Skip}, true
}
