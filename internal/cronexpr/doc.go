// Package cronexpr computes when a cron is due. It is pure: it reads no clock,
// no environment and no file, and a Schedule is immutable.
//
// # Parsing
//
// This package parses all fields itself, into bit sets, without robfig/cron: that
// parser accepts steps beyond the range and empty list items, has no wrap-around
// range, no weekday 7, no L, W, # or H, treats "*/2" among the days as
// restricted, panics on a bare "TZ=UTC", and gives errors without a position.
// It could be used for no more than splitting "1-5".
//
// # From wall clock to instants
//
// A zone is a sequence of segments of constant UTC offset. Inside a segment the wall
// clock ("civil time", counted in seconds since 1970-01-01 00:00 on the wall)
// and the instants differ by that constant, so the next match is found in civil
// time, where every day has 24 hours, and moved by the offset. The search never
// steps a wall clock across a transition, which would lose or double
// ticks:
//
//	instants   ------- segment, +01 -------|T|------- segment, +02 -------
//	civil      ... 00:30   01:00   01:30 2:00|3:00   03:30   04:00 ...
//	                                        gap
//
// The two kinds of cron differ only at the transition T itself. A wildcard cron
// (its minute or hour begins with *) follows the wall clock: times in a gap
// have no tick, times in a repeated stretch have two. A fixed-time cron has
// one tick for each time of the calendar: times in a gap move to T
// (run-after), keep their elapsed distance (shift) or are skipped (skip); of a
// repeated time the first, the last or both count. A gap of more than three
// hours means that the zone crosses the date line; its ticks are not made up for.
//
// It is enough to compare the two segments at a transition because the segments
// of the database last days, never hours; TestZones checks that.
//
// # Bounds
//
// Ticks are whole seconds from the year 1 to the year 9999. The calendar
// repeats after 400 years, so a search of that length proves that an
// expression never fires; Parse does it once and rejects such expressions.
// Days are found with one bit mask per month, so that even a search of 400 years
// takes less than a millisecond.
package cronexpr
