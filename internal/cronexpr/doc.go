// Package cronexpr decides when a cron is due. It is pure: it reads no clock,
// no environment and no file, and a Schedule is immutable.
//
// # Parsing
//
// All fields are parsed here, into bit sets, and not by robfig/cron: that
// parser takes steps beyond the range and empty list items, knows no wrap-around
// range, no weekday 7, no L, W, # or H, treats "*/2" among the days as
// restricted, panics on a bare "TZ=UTC", and gives errors without a position.
// What would be left for it is the splitting of "1-5".
//
// # From wall clock to instants
//
// A zone is a row of segments of constant UTC offset. Inside a segment the wall
// clock ("civil time", counted in seconds since 1970-01-01 00:00 on the wall)
// and the instants differ by that constant, so the next match is found in civil
// time, where every day has 24 hours, and moved by the offset. Nothing ever
// steps a wall clock across a transition, which is what loses or doubles ticks
// elsewhere:
//
//	instants   ------- segment, +01 -------|T|------- segment, +02 -------
//	civil      ... 00:30   01:00   01:30 2:00|3:00   03:30   04:00 ...
//	                                        gap
//
// Only at the transition T itself the two kinds of cron differ. A wildcard cron
// (its minute or hour begins with *) takes what the wall shows: times in a gap
// do not come, times in a repeated stretch come twice. A fixed-time cron has
// one tick for each time of the calendar: times in a gap move to T
// (run-after), keep their elapsed distance (shift) or are skipped; of a
// repeated time the first, the last or both count. Gaps of more than three
// hours are a zone that crosses the date line, and not replayed.
//
// Looking at the two neighbours of a transition is enough because the segments
// of the database last days, never hours; a test holds that.
//
// # Bounds
//
// Ticks are whole seconds from the year 1 to the year 9999. The calendar
// repeats after 400 years, so a search of that length proves that an
// expression never fires; Parse does it once and refuses such expressions.
// Days are found by one bit mask a month, so that even the search of 400 years
// takes less than a millisecond.
package cronexpr
