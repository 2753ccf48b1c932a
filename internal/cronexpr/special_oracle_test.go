package cronexpr_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// item is one item of a field and its meaning, computed from a calendar.
type item struct {
	text  string
	holds func(at time.Time) bool
}

func daysIn(at time.Time) int {
	return time.Date(at.Year(), at.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func isWeekend(day time.Time) bool {
	return day.Weekday() == time.Saturday || day.Weekday() == time.Sunday
}

// nearestWeekday returns the day from Monday to Friday nearest to a day of the month; the
// earlier one when two are equally near.
func nearestWeekday(at time.Time, day int) int {
	for _, away := range []int{0, -1, 1, -2, 2} {
		candidate := time.Date(at.Year(), at.Month(), day+away, 0, 0, 0, 0, time.UTC)
		if candidate.Month() == at.Month() && !isWeekend(candidate) {
			return candidate.Day()
		}
	}
	return 0
}

// drawSpan draws a range, which may wrap around, with a step.
func drawSpan(t *rapid.T, label string, low, high int, value func(time.Time) int) item {
	a, b := rapid.IntRange(low, high).Draw(t, label+" from"), rapid.IntRange(low, high).Draw(t, label+" to")
	var members []int
	for v := a; ; v++ {
		if v > high {
			v = low
		}
		members = append(members, v)
		if v == b {
			break
		}
	}
	text := fmt.Sprintf("%d-%d", a, b)
	if len(members) > 1 {
		step := rapid.IntRange(1, min(len(members)-1, 6)).Draw(t, label+" step")
		text = fmt.Sprintf("%s/%d", text, step)
		var stepped []int
		for i := 0; i < len(members); i += step {
			stepped = append(stepped, members[i])
		}
		members = stepped
	}
	return item{text, func(at time.Time) bool { return slices.Contains(members, value(at)) }}
}

// specialDays returns all forms of a day of the month except lists and ranges.
func specialDays() []item {
	days := []item{
		{"L", func(at time.Time) bool { return at.Day() == daysIn(at) }},
		{"LW", func(at time.Time) bool {
			last := daysIn(at)
			for isWeekend(time.Date(at.Year(), at.Month(), last, 0, 0, 0, 0, time.UTC)) {
				last--
			}
			return at.Day() == last
		}},
	}
	for n := 1; n <= 31; n++ {
		days = append(days, item{fmt.Sprintf("%dW", n), func(at time.Time) bool {
			return n <= daysIn(at) && at.Day() == nearestWeekday(at, n)
		}})
		if n <= 30 {
			days = append(days, item{fmt.Sprintf("L-%d", n), func(at time.Time) bool { return at.Day() == daysIn(at)-n }})
		}
	}
	return days
}

// specialWeekdays returns the same for days of the week.
func specialWeekdays() []item {
	var days []item
	for day := range 8 {
		is := func(at time.Time) bool { return int(at.Weekday()) == day%7 }
		days = append(days, item{fmt.Sprintf("%dL", day), func(at time.Time) bool { return is(at) && at.Day()+7 > daysIn(at) }})
		for nth := 1; nth <= 5; nth++ {
			days = append(days, item{fmt.Sprintf("%d#%d", day, nth), func(at time.Time) bool { return is(at) && (at.Day()+6)/7 == nth }})
		}
	}
	return days
}

// TestSpecialDaysOfEveryMonth checks every day of 28 years: in them each month begins on
// each day of the week, also with a leap day.
func TestSpecialDaysOfEveryMonth(t *testing.T) {
	t.Parallel()
	from := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	check := func(expression string, holds func(time.Time) bool) {
		t.Helper()
		s := mustParse(t, expression, cronexpr.Options{Timezone: "UTC"})
		next, more := s.Next(from.Add(-time.Nanosecond))
		for at := from; at.Year() < 2028; at = at.AddDate(0, 0, 1) {
			if due := more && next.Equal(at); due != holds(at) {
				t.Errorf("%q: next is %s; on %s the calendar says %t", expression, next, at.Format(time.DateOnly), holds(at))
				return
			}
			if holds(at) {
				next, more = s.Next(at)
			}
		}
	}
	for _, day := range specialDays() {
		check("0 0 "+day.text+" * *", day.holds)
	}
	for _, day := range specialWeekdays() {
		check("0 0 * * "+day.text, day.holds)
	}
}

func drawDay(t *rapid.T) item {
	return rapid.SampledFrom(append(specialDays(), drawSpan(t, "days", 1, 31, time.Time.Day))).Draw(t, "kind of day")
}

func drawWeekday(t *rapid.T) item {
	span := drawSpan(t, "weekdays", 0, 6, func(at time.Time) int { return int(at.Weekday()) })
	return rapid.SampledFrom(append(specialWeekdays(), span)).Draw(t, "kind of weekday")
}

// TestSpecialDaysAgreeWithACalendar checks all fields together, in every minute of some
// months.
func TestSpecialDaysAgreeWithACalendar(t *testing.T) {
	t.Parallel()
	always := item{"*", func(time.Time) bool { return true }}
	rapid.Check(t, func(t *rapid.T) {
		minute := drawSpan(t, "minutes", 0, 59, time.Time.Minute)
		hour := drawSpan(t, "hours", 0, 23, time.Time.Hour)
		day, weekday := drawDay(t), drawWeekday(t)
		either := true
		switch rapid.IntRange(0, 2).Draw(t, "restricted") {
		case 0:
			day, either = always, false
		case 1:
			weekday, either = always, false
		}
		expression := strings.Join([]string{minute.text, hour.text, day.text, "*", weekday.text}, " ")
		s, err := cronexpr.Parse(expression, cronexpr.Options{Timezone: "UTC"})
		if err != nil {
			t.Fatalf("Parse(%q): %v", expression, err)
		}
		from := time.Date(2024, time.Month(rapid.IntRange(1, 36).Draw(t, "month")), 1, 0, 0, 0, 0, time.UTC)
		until := from.AddDate(0, 1, 0)
		next, more := s.Next(from.Add(-time.Nanosecond))
		for at := from; at.Before(until); at = at.Add(time.Minute) {
			matches := day.holds(at) && weekday.holds(at)
			if either {
				matches = day.holds(at) || weekday.holds(at)
			}
			matches = matches && minute.holds(at) && hour.holds(at)
			if due := more && next.Equal(at); due != matches {
				t.Fatalf("%q: next is %s; at %s the calendar says %t", expression, next, at, matches)
			}
			if matches {
				next, more = s.Next(at)
			}
		}
	})
}
