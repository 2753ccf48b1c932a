package cronexpr

import (
	"iter"
	"math"
	"time"
)

// Schedule is a parsed expression. It is immutable and safe for concurrent use.
type Schedule struct {
	expression string
	kind       kind
	zone       *time.Location

	calendar calendar // of calendarKind
	// wildcard crons follow the wall clock; the others are fixed-time.
	wildcard    bool
	dstMissing  string
	dstRepeated string

	every, phase int64 // of everyKind, in seconds
	at           int64 // of atKind, in Unix seconds
}

type kind int

const (
	calendarKind kind = iota
	everyKind
	atKind
	manualKind
)

// Tick is one due instant.
type Tick struct {
	At time.Time
	// SkippedDST is true when the tick does not fire: its wall-clock time is in a gap and
	// the cron's dst_missing is skip. At is then the first instant after the gap.
	SkippedDST bool
}

// Next returns the first tick strictly after an instant, in the cron's zone. It returns
// false when there is none.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	for at := range s.from(after) {
		return at, true
	}
	return time.Time{}, false
}

// Ticks yields the ticks that the ledger records in (after, until], in the cron's zone: those
// that fire and those that dst_missing skips. No two have the same instant.
func (s *Schedule) Ticks(after, until time.Time) iter.Seq[Tick] {
	return func(yield func(Tick) bool) {
		for tick := range s.ticks(after) {
			if tick.At.After(until) || !yield(tick) {
				return
			}
		}
	}
}

// Manual reports whether the cron fires only when it is triggered.
func (s *Schedule) Manual() bool { return s.kind == manualKind }

// String returns the expression as given.
func (s *Schedule) String() string { return s.expression }

// from yields the ticks that fire after an instant.
func (s *Schedule) from(after time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for tick := range s.ticks(after) {
			if !tick.SkippedDST && !yield(tick.At) {
				return
			}
		}
	}
}

// ticks yields all ticks after an instant.
func (s *Schedule) ticks(after time.Time) iter.Seq[Tick] {
	return func(yield func(Tick) bool) {
		next := s.stepper()
		for last := unixSeconds(after); ; {
			t, ok := next(last)
			if !ok || t.unix > lastSecond || !yield(Tick{time.Unix(t.unix, 0).In(s.zone), t.skipped}) {
				return
			}
			last = t.unix
		}
	}
}

// instant is a Tick in Unix seconds.
type instant struct {
	unix    int64
	skipped bool
}

// stepper returns a function that finds the first tick strictly after a second. Callers
// pass ascending seconds.
func (s *Schedule) stepper() func(after int64) (instant, bool) {
	switch s.kind {
	case everyKind:
		return func(after int64) (instant, bool) {
			return instant{unix: after + s.every - floorMod(after-s.phase, s.every)}, true
		}
	case atKind:
		return func(after int64) (instant, bool) { return instant{unix: s.at}, s.at > after }
	case calendarKind:
		w := walk{schedule: s}
		return w.next
	case manualKind:
	}
	return func(int64) (instant, bool) { return instant{}, false }
}

// unixSeconds rounds down to a second in the years that have ticks, or to the second
// before them.
func unixSeconds(t time.Time) int64 {
	switch year := t.UTC().Year(); {
	case year < 1:
		return firstSecond - 1
	case year > 9999:
		return lastSecond
	}
	return t.Unix()
}

func floorMod(a, b int64) int64 { return ((a % b) + b) % b }

// Forever is the MinInterval of a schedule without two ticks.
const Forever = time.Duration(math.MaxInt64)
