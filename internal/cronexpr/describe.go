package cronexpr

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Describe returns in plain English when the cron fires: "every 15 minutes", "at 02:30
// every day (Europe/Berlin)". The zone is left out when it is UTC.
func (s *Schedule) Describe() string {
	switch s.kind {
	case manualKind:
		return "only when triggered"
	case atKind:
		return "once, at " + time.Unix(s.at, 0).In(s.zone).Format("2006-01-02 15:04:05 MST")
	case everyKind:
		text := "every " + spell(s.every)
		if unit, one := strings.CutPrefix(text, "every 1 "); one && !strings.Contains(unit, " ") {
			text = "every " + unit
		}
		if s.phase != 0 {
			text += ", shifted by " + spell(s.phase)
		}
		return text
	case calendarKind:
	}
	times, atTimes := s.calendar.describeTimes()
	text := strings.TrimSpace(times + " " + s.calendar.describeDays(atTimes))
	if s.zone != time.UTC {
		text += " (" + s.zone.String() + ")"
	}
	return text
}

const (
	allSixty = 1<<60 - 1
	allHours = 1<<24 - 1
)

// describeTimes describes the times of a day. atTimes is true for clock times ("at
// 02:30") and false for intervals ("every hour").
func (c *calendar) describeTimes() (text string, atTimes bool) {
	hours := uint64(c.hour)
	everyHour := hours == allHours
	step, even := evenStep(hours, 24)
	switch {
	case everyHour && c.minute == allSixty && c.second != 1:
		return rhythm(c.second, "second", "minute"), false
	case everyHour && c.second == 1:
		return rhythm(c.minute, "minute", "hour"), false
	case even && c.minute == 1 && c.second == 1:
		return fmt.Sprintf("every %d hours", step), false
	case bits.OnesCount64(hours)*bits.OnesCount64(c.minute)*bits.OnesCount64(c.second) <= 6:
		return "at " + join(c.clockTimes(), "and"), true
	}
	var parts []string
	if c.second != 1 {
		parts = append(parts, pattern(c.second, 60, "second"))
	}
	if c.minute != allSixty || c.second == 1 {
		parts = append(parts, pattern(c.minute, 60, "minute"))
	}
	if !everyHour {
		parts = append(parts, pattern(hours, 24, "hour"))
	} else {
		parts = append(parts, "every hour")
	}
	text = strings.Join(parts, " of ")
	if !strings.HasPrefix(text, "every") {
		text = "at " + text
	}
	return text, false
}

// clockTimes returns the times of a day, in words.
func (c *calendar) clockTimes() []string {
	var times []string
	for at, ok := c.nextOfDay(0); ok; at, ok = c.nextOfDay(at + 1) {
		text := fmt.Sprintf("%02d:%02d", at/hourSeconds, at/60%60)
		if c.second != 1 {
			text += fmt.Sprintf(":%02d", at%60)
		}
		times = append(times, text)
	}
	return times
}

// rhythm describes the minutes of every hour, or the seconds of every minute.
func rhythm(mask uint64, unit, whole string) string {
	step, even := evenStep(mask, 60)
	switch {
	case even && step == 1:
		return "every " + unit
	case even:
		return fmt.Sprintf("every %d %ss", step, unit)
	case mask == 1:
		return "every " + whole
	}
	return "at " + pattern(mask, 60, unit) + " of every " + whole
}

// evenStep returns the step of a mask that begins at 0 and divides the whole.
func evenStep(mask uint64, size int) (int, bool) {
	count := bits.OnesCount64(mask)
	if count < 2 || size%count != 0 {
		return 0, false
	}
	step := size / count
	for v := range ones(mask) {
		if v%step != 0 {
			return 0, false
		}
	}
	return step, true
}

// pattern describes one field of a sentence: "minutes 0, 15 and 30".
func pattern(mask uint64, size int, unit string) string {
	if step, ok := evenStep(mask, size); ok {
		if step == 1 {
			return "every " + unit
		}
		return "every " + nth(step) + " " + unit
	}
	if bits.OnesCount64(mask) == 1 {
		return unit + " " + list(mask, strconv.Itoa)
	}
	return unit + "s " + list(mask, strconv.Itoa)
}

// list names the bits of a mask; runs of three or more become "1 to 5".
func list(mask uint64, name func(int) string) string {
	var items []string
	for mask != 0 {
		first := bits.TrailingZeros64(mask)
		last := first + bits.TrailingZeros64(^(mask >> first)) - 1
		switch {
		case last-first >= 2:
			items = append(items, name(first)+" to "+name(last))
		case last > first:
			items = append(items, name(first), name(last))
		default:
			items = append(items, name(first))
		}
		mask &^= 1<<(last+1) - 1
	}
	return join(items, "and")
}

// describeDays describes the days. It returns "every day" only after a time of day.
func (c *calendar) describeDays(atTimes bool) string {
	months := ""
	if c.month != 1<<13-2 {
		months = " in " + monthList(c.month, "and")
	}
	days, ofMonth := c.describeMatching()
	switch {
	case days == "" && !atTimes:
		return strings.TrimSpace(months)
	case days == "":
		return "every day" + months
	case months == "" && ofMonth:
		return days + " of every month"
	}
	return days + months
}

// describeMatching joins the two day fields; it returns "" for every day. ofMonth is true
// when the text needs a month after it.
func (c *calendar) describeMatching() (text string, ofMonth bool) {
	byMonth, byWeek := c.dom.describe(), c.dow.describe()
	either := c.dom.restricted && c.dow.restricted
	switch {
	case either && (byMonth == "" || byWeek == ""):
		return "", false
	case byMonth == "":
		return byWeek, byWeek != "" && c.dow.days == 0
	case byWeek == "":
		return byMonth, true
	case either:
		return byMonth + " or " + byWeek, false
	}
	return byMonth + " if " + byWeek, false
}

func (d *monthDays) describe() string {
	if d.days == 1<<32-2 {
		return ""
	}
	var parts []string
	if n := bits.OnesCount32(d.days); n > 0 {
		noun := "day "
		if n > 1 {
			noun = "days "
		}
		parts = append(parts, noun+list(uint64(d.days), strconv.Itoa))
	}
	for n := range ones(uint64(d.fromLast)) {
		if n == 0 {
			parts = append(parts, "the last day")
			continue
		}
		parts = append(parts, plural(n, "day")+" before the last day")
	}
	for n := range ones(uint64(d.nearest)) {
		parts = append(parts, fmt.Sprintf("the weekday nearest to day %d", n))
	}
	if d.lastWorkday {
		parts = append(parts, "the last weekday")
	}
	return "on " + join(parts, "and")
}

func (d *weekDays) describe() string {
	if d.days == 1<<7-1 {
		return ""
	}
	var parts []string
	if d.days != 0 {
		parts = append(parts, list(mondayFirst(d.days), weekdayName))
	}
	for weekday := range 7 {
		for n := range ones(uint64(d.nth[weekday])) { // 1 to 5
			parts = append(parts, "the "+ordinals[n]+" "+weekdayName(weekday))
		}
		if has(uint64(d.last), weekday) {
			parts = append(parts, "the last "+weekdayName(weekday))
		}
	}
	return "on " + join(parts, "and")
}

// mondayFirst moves Sunday after Saturday, so that a weekend is one run.
func mondayFirst(days uint8) uint64 {
	mask := uint64(days)
	return mask&^1 | mask&1<<7
}

func weekdayName(day int) string { return time.Weekday(day % 7).String() }

func monthList(months uint16, and string) string {
	if and == "and" {
		return list(uint64(months), func(m int) string { return time.Month(m).String() })
	}
	var names []string
	for m := range ones(uint64(months)) {
		names = append(names, time.Month(m).String())
	}
	return join(names, and)
}

var ordinals = [...]string{1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}

// nth formats the divisors of 60 and 24 as "2nd", "3rd", "15th".
func nth(n int) string {
	switch n {
	case 2:
		return "2nd"
	case 3:
		return "3rd"
	}
	return strconv.Itoa(n) + "th"
}

// spell formats a number of seconds as "1 minute 30 seconds".
func spell(seconds int64) string {
	var parts []string
	units := [...]struct {
		name string
		size int64
	}{{"day", daySeconds}, {"hour", hourSeconds}, {"minute", 60}, {"second", 1}}
	for _, unit := range units {
		if n := seconds / unit.size; n > 0 {
			parts = append(parts, plural(int(n), unit.name))
			seconds -= n * unit.size
		}
	}
	return strings.Join(parts, " ")
}
