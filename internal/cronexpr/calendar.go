package cronexpr

import (
	"math/bits"
	"time"
)

// Ticks are in the years 1 to 9999, both as instants and in wall-clock time.
var (
	firstSecond = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	lastSecond  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
)

// calendarCycle is the number of years after which the Gregorian calendar repeats,
// weekdays included.
const calendarCycle = 400

const (
	daySeconds  = 24 * 60 * 60
	hourSeconds = 60 * 60
)

// calendar holds the fields of an expression as sets of civil times. Bit n of a mask
// stands for the value n.
type calendar struct {
	second, minute uint64
	hour           uint32
	month          uint16
	dom            monthDays
	dow            weekDays
}

// monthDays is the field day-of-month.
type monthDays struct {
	// restricted is false for * (with or without a step) and ?.
	restricted bool
	days       uint32
	// fromLast has bit n set for L-n; bit 0 is L.
	fromLast uint32
	// nearest has bit n set for nW.
	nearest uint32
	// lastWorkday is LW.
	lastWorkday bool
}

// weekDays is the field day-of-week; 0 is Sunday.
type weekDays struct {
	restricted bool
	days       uint8
	// nth has bit n of element d set for d#n.
	nth [7]uint8
	// last has bit d set for dL.
	last uint8
}

// month is one month of the calendar.
type month struct {
	year int
	of   time.Month
}

func (m month) next() month {
	if m.of == time.December {
		return month{m.year + 1, time.January}
	}
	return month{m.year, m.of + 1}
}

// start returns the civil second at which the month begins.
func (m month) start() int64 {
	return time.Date(m.year, m.of, 1, 0, 0, 0, 0, time.UTC).Unix()
}

// length returns the number of days.
func (m month) length() int {
	return time.Date(m.year, m.of+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// dayMask returns the matching days of one month.
func (c *calendar) dayMask(m month) uint32 {
	if c.month&(1<<m.of) == 0 {
		return 0
	}
	length := m.length()
	first := weekdayOf(m.start())
	whole := uint32(1)<<(length+1) - 2
	byMonth := c.dom.mask(first, length) & whole
	byWeek := c.dow.mask(first, length) & whole
	if c.dom.restricted && c.dow.restricted {
		return byMonth | byWeek // Vixie's rule
	}
	return byMonth & byWeek
}

// mask returns the days of a month of the given length whose first day is the given
// weekday. It may have bits beyond the month's end.
func (d *monthDays) mask(first, length int) uint32 {
	mask := d.days
	for n := range ones(uint64(d.fromLast)) {
		if n < length {
			mask |= 1 << (length - n)
		}
	}
	for day := range ones(uint64(d.nearest)) {
		if day <= length {
			mask |= 1 << nearestWorkday(day, first, length)
		}
	}
	if d.lastWorkday {
		mask |= 1 << nearestWorkday(length, first, length)
	}
	return mask
}

// mask is like monthDays.mask.
func (d *weekDays) mask(first, length int) uint32 {
	var mask uint32
	for weekday := range 7 {
		day := 1 + (weekday-first+7)%7 // the first such weekday
		if d.days&(1<<weekday) != 0 {
			mask |= (1 | 1<<7 | 1<<14 | 1<<21 | 1<<28) << day
		}
		for n := range ones(uint64(d.nth[weekday])) {
			mask |= 1 << (day + 7*(n-1)) // a fifth may be beyond the month
		}
		if d.last&(1<<weekday) != 0 {
			mask |= 1 << (day + (length-day)/7*7)
		}
	}
	return mask
}

// nearestWorkday returns the day from Monday to Friday that is nearest to day
// and in the same month.
func nearestWorkday(day, first, length int) int {
	weekday := time.Weekday((first + day - 1) % 7)
	switch {
	case weekday == time.Saturday && day == 1:
		return 3
	case weekday == time.Saturday:
		return day - 1
	case weekday == time.Sunday && day == length:
		return day - 2
	case weekday == time.Sunday:
		return day + 1
	}
	return day
}

// next returns the first matching civil second at or after from.
func (c *calendar) next(from int64) (int64, bool) {
	from = max(from, firstSecond)
	midnight, ofDay := splitDay(from)
	day, ok := c.nextDay(midnight)
	if !ok {
		return 0, false
	}
	if day == midnight {
		if second, ok := c.nextOfDay(ofDay); ok {
			return day + int64(second), true
		}
		if day, ok = c.nextDay(midnight + daySeconds); !ok {
			return 0, false
		}
	}
	second, ok := c.nextOfDay(0)
	return day + int64(second), ok
}

// nextDay returns the midnight of the first matching day at or after the day
// that begins at midnight.
func (c *calendar) nextDay(midnight int64) (int64, bool) {
	year, of, day := time.Unix(midnight, 0).UTC().Date()
	if year > 9999 {
		return 0, false
	}
	m, past := month{year, of}, uint32(1)<<day-1
	for m.year <= min(year+calendarCycle, 9999) {
		if mask := c.dayMask(m) &^ past; mask != 0 {
			return m.start() + int64(bits.TrailingZeros32(mask)-1)*daySeconds, true
		}
		m, past = m.next(), 0
	}
	return 0, false
}

// nextOfDay returns the first matching second of a day at or after from; both are counted
// from midnight.
func (c *calendar) nextOfDay(from int) (int, bool) {
	hour, minute, second := from/hourSeconds, from/60%60, from%60
	firstMinute, firstSecond := bits.TrailingZeros64(c.minute), bits.TrailingZeros64(c.second)
	if has(uint64(c.hour), hour) {
		if has(c.minute, minute) {
			if s, ok := nextBit(c.second, second); ok {
				return hour*hourSeconds + minute*60 + s, true
			}
		}
		if m, ok := nextBit(c.minute, minute+1); ok {
			return hour*hourSeconds + m*60 + firstSecond, true
		}
	}
	h, ok := nextBit(uint64(c.hour), hour+1)
	return h*hourSeconds + firstMinute*60 + firstSecond, ok
}

func has(mask uint64, bit int) bool { return mask&(1<<bit) != 0 }

// nextBit returns the lowest set bit at or above from.
func nextBit(mask uint64, from int) (int, bool) {
	mask &= ^uint64(0) << from
	return bits.TrailingZeros64(mask), mask != 0
}

// ones yields the set bits of a mask, lowest first.
func ones(mask uint64) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for ; mask != 0; mask &= mask - 1 {
			if !yield(bits.TrailingZeros64(mask)) {
				return
			}
		}
	}
}

// splitDay splits a civil second into its midnight and the second of the day.
func splitDay(civil int64) (midnight int64, ofDay int) {
	ofDay = int(civil % daySeconds)
	if ofDay < 0 {
		ofDay += daySeconds
	}
	return civil - int64(ofDay), ofDay
}

// weekdayOf returns the weekday of a civil midnight, 0 for Sunday.
func weekdayOf(midnight int64) int {
	return int(time.Unix(midnight, 0).UTC().Weekday())
}
