package cronexpr

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Warnings returns warnings about allowed expressions that are often a mistake, one
// sentence each. The dates in them are after from.
func (s *Schedule) Warnings(from time.Time) []string {
	if s.kind != calendarKind {
		return nil
	}
	var warnings []string
	if s.leapYearsOnly() {
		warnings = append(warnings, "it fires only on 29 February: next on "+
			s.nextTicks(from, 3, time.DateOnly))
	}
	if lost := s.lostInGaps(from, 3); len(lost) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"daylight saving in %s takes ticks away from a minute or hour with *: there is no %s",
			s.zone, join(lost, "and")))
	}
	if s.calendar.dom.restricted && s.calendar.dow.restricted {
		warnings = append(warnings, "day-of-month and day-of-week are both set, and either is enough: next on "+
			s.nextTicks(from, 5, "Mon 2006-01-02 15:04"))
	}
	return warnings
}

// nextTicks lists the next n ticks.
func (s *Schedule) nextTicks(from time.Time, n int, layout string) string {
	var ticks []string
	for at := range s.from(from) {
		if text := at.Format(layout); !slices.Contains(ticks, text) {
			ticks = append(ticks, text)
		}
		if len(ticks) == n {
			break
		}
	}
	return join(ticks, "and")
}

// leapYearsOnly checks one ordinary year for each weekday on which a year can begin.
func (s *Schedule) leapYearsOnly() bool {
	for _, year := range [...]int{2001, 2002, 2003, 2005, 2009, 2010, 2011} {
		for m := (month{year, time.January}); m.year == year; m = m.next() {
			if s.calendar.dayMask(m) != 0 {
				return false
			}
		}
	}
	return true
}

// gapYears is the number of years that lostInGaps checks.
const gapYears = 10

// lostInGaps returns the first n wall-clock times that a wildcard cron misses in gaps. A
// cron whose rhythm continues over the gap loses nothing: every 15 minutes stays every 15
// minutes.
func (s *Schedule) lostInGaps(from time.Time, n int) []string {
	if !s.wildcard {
		return nil
	}
	var lost []string
	start := unixSeconds(from)
	for before, after := range transitions(s.zone, start, start+gapYears*366*daySeconds) {
		civil, ok := s.calendar.next(after.start + before.offset)
		if !ok || civil >= after.start+after.offset {
			continue
		}
		w := walk{schedule: s}
		if tick, ok := w.next(after.start - 1); ok && tick.unix <= civil-before.offset {
			continue
		}
		lost = append(lost, time.Unix(civil, 0).UTC().Format("15:04 on 2006-01-02"))
		if len(lost) == n {
			break
		}
	}
	return lost
}

// join formats "a", "a and b", "a, b and c".
func join(items []string, and string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	last := len(items) - 1
	return strings.Join(items[:last], ", ") + " " + and + " " + items[last]
}
