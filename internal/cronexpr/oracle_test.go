package cronexpr_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// plainCron is a cron as lists of values, the form that the oracle evaluates.
type plainCron struct {
	minutes, hours, days, months, weekdays []int // nil is *
	zone                                   *time.Location
	missing, repeated                      string
}

func (c plainCron) String() string {
	field := func(values []int) string {
		if values == nil {
			return "*"
		}
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = strconv.Itoa(v)
		}
		return strings.Join(texts, ",")
	}
	return strings.Join([]string{
		field(c.minutes), field(c.hours), field(c.days), field(c.months), field(c.weekdays),
	}, " ")
}

// matches reports whether the cron matches a wall-clock time, held as a time in UTC.
func (c plainCron) matches(wall time.Time) bool {
	in := func(values []int, v int) bool { return values == nil || slices.Contains(values, v) }
	day := in(c.days, wall.Day()) && in(c.weekdays, int(wall.Weekday()))
	if c.days != nil && c.weekdays != nil {
		day = in(c.days, wall.Day()) || in(c.weekdays, int(wall.Weekday()))
	}
	return in(c.minutes, wall.Minute()) && in(c.hours, wall.Hour()) && in(c.months, int(wall.Month())) && day
}

// wallClock returns a zone's wall-clock time as a time in UTC.
func wallClock(at time.Time, zone *time.Location) time.Time {
	local := at.In(zone)
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
}

// oracle reads the wall clock in every minute of (after, until] and returns the ticks as
// a person with a calendar would note them.
func (c plainCron) oracle(after, until time.Time) []string {
	const margin = 4 * time.Hour // more than the wall clock repeats
	wildcard := c.minutes == nil || c.hours == nil
	firstShown, lastShown := map[int64]time.Time{}, map[int64]time.Time{}
	for at := after.Add(-margin); !at.After(until.Add(margin)); at = at.Add(time.Minute) {
		wall := wallClock(at, c.zone).Unix()
		if _, ok := firstShown[wall]; !ok {
			firstShown[wall] = at
		}
		lastShown[wall] = at
	}
	fires, skips := map[time.Time]bool{}, map[time.Time]bool{}
	before := wallClock(after.Add(-margin), c.zone)
	for at := after.Add(-margin); !at.After(until); at = at.Add(time.Minute) {
		wall := wallClock(at, c.zone)
		missing := int(wall.Sub(before)/time.Minute) - 1
		if !wildcard && missing > 0 && missing <= 180 {
			for i := range missing {
				if !c.matches(before.Add(time.Duration(i+1) * time.Minute)) {
					continue
				}
				switch c.missing {
				case "run-after":
					fires[at] = true
				case "shift":
					fires[at.Add(time.Duration(i)*time.Minute)] = true
				case "skip":
					skips[at] = true
				}
			}
		}
		wanted := wildcard || c.repeated == "both" ||
			c.repeated == "first" && firstShown[wall.Unix()].Equal(at) ||
			c.repeated == "last" && lastShown[wall.Unix()].Equal(at)
		if wanted && c.matches(wall) {
			fires[at] = true
		}
		before = wall
	}
	var ticks []string
	for at := after.Add(time.Minute); !at.After(until); at = at.Add(time.Minute) {
		switch {
		case fires[at]:
			ticks = append(ticks, at.UTC().Format(time.RFC3339))
		case skips[at]:
			ticks = append(ticks, at.UTC().Format(time.RFC3339)+" skipped")
		}
	}
	return ticks
}

// drawCron draws a cron, its zone and a time near an interesting transition.
func drawCron(t *rapid.T, zones []string) (plainCron, string, time.Time) {
	values := func(label string, low, high, most int) []int {
		if rapid.IntRange(0, 3).Draw(t, label+" is *") == 0 {
			return nil
		}
		return rapid.SliceOfNDistinct(rapid.IntRange(low, high), 1, most, rapid.ID).Draw(t, label)
	}
	name := rapid.SampledFrom(zones).Draw(t, "zone")
	zone, err := cronexpr.LoadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	c := plainCron{
		minutes: values("minutes", 0, 59, 4), hours: values("hours", 0, 3, 4),
		zone:     zone,
		missing:  rapid.SampledFrom([]string{"run-after", "shift", "skip"}).Draw(t, "missing"),
		repeated: rapid.SampledFrom([]string{"first", "last", "both"}).Draw(t, "repeated"),
	}
	if rapid.Bool().Draw(t, "any hour") {
		c.hours = values("hours of the day", 0, 23, 4)
	}
	if rapid.IntRange(0, 3).Draw(t, "has days") == 0 {
		c.days, c.weekdays = values("days", 1, 31, 10), values("weekdays", 0, 6, 4)
		c.months = values("months", 1, 12, 8)
	}
	// 1990 and later: before, offsets had seconds.
	at := time.Unix(rapid.Int64Range(631152000, 2524608000).Draw(t, "at")/60*60, 0)
	if _, end := at.In(zone).ZoneBounds(); !end.IsZero() && rapid.IntRange(0, 4).Draw(t, "at change") > 0 {
		at = end
	}
	return c, name, at.UTC()
}

func TestTicksAgreeWithTheOracle(t *testing.T) {
	t.Parallel()
	zones := cronexpr.ZoneNames()
	rapid.Check(t, func(t *rapid.T) {
		c, zone, at := drawCron(t, zones)
		s, err := cronexpr.Parse(c.String(), cronexpr.Options{
			Timezone: zone, DSTMissing: c.missing, DSTRepeated: c.repeated,
		})
		if err != nil {
			if strings.Contains(err.Error(), "never fires") {
				return
			}
			t.Fatalf("Parse(%q): %v", c, err)
		}
		after, until := at.Add(-36*time.Hour), at.Add(36*time.Hour)
		var got []string
		for tick := range s.Ticks(after, until) {
			text := tick.At.UTC().Format(time.RFC3339)
			if tick.SkippedDST {
				text += " skipped"
			}
			got = append(got, text)
		}
		if want := c.oracle(after, until); !slices.Equal(got, want) {
			t.Fatalf("%s in %s around %s\ngot  %v\nwant %v", c, zone, at, got, want)
		}
	})
}

func TestNextGoesOn(t *testing.T) {
	t.Parallel()
	zones := cronexpr.ZoneNames()
	specials := []string{
		"H H L * *", "0 2 15W,LW * ?", "30 2 ? * 5#3,7L", "*/7 */5 L-3 * *", "0 0 29 2 *",
		"*/10 * 1-3 * * *", "0 30 2 * * SAT-MON", "@every 61s/7s", "@hourly", "@weekly",
	}
	rapid.Check(t, func(t *rapid.T) {
		c, zone, at := drawCron(t, zones)
		expression := c.String()
		if rapid.Bool().Draw(t, "special") {
			expression = rapid.SampledFrom(specials).Draw(t, "expression")
		}
		s, err := cronexpr.Parse(expression, cronexpr.Options{
			Timezone: zone, DSTMissing: c.missing, DSTRepeated: c.repeated, Name: "n",
		})
		if err != nil {
			return // other tests cover rejected expressions
		}
		shortest, last := s.MinInterval(), time.Time{}
		at = at.Add(-time.Hour)
		for range 50 {
			next, ok := s.Next(at)
			if !ok || !next.After(at) {
				t.Fatalf("%s: Next(%s) = %s, %t", expression, at, next, ok)
			}
			if again, _ := s.Next(next.Add(-time.Nanosecond)); !again.Equal(next) {
				t.Fatalf("%s: %s, and %s just before it", expression, next, again)
			}
			// The bound is for the rules since 2020.
			if last.Year() >= 2020 && next.Sub(last) < shortest {
				t.Fatalf("%s in %s: %s after %s, less than %s", expression, zone, next, last, shortest)
			}
			at, last = next, next
		}
		if n := countTicks(s, last.Add(-time.Second), last); n != 1 {
			t.Fatalf("%s: %d ticks in the second of one tick", expression, n)
		}
	})
}

// TestOneTickADay checks that a fixed-time cron has one tick on each day of ten years, in
// every zone of the database. A tick whose time is missing at the end of a day falls on
// the next midnight, and belongs to the day before.
func TestOneTickADay(t *testing.T) {
	t.Parallel()
	for i, zone := range cronexpr.ZoneNames() {
		hour, minute := i*7%24, i*13%60
		if i%3 == 0 {
			hour = i / 3 % 4 // the hours that have gaps
		}
		checkOneTickADay(t, zone, hour, minute, []string{"first", "first", "first", "last"}[i%4])
	}
	for _, zone := range []string{"America/Nuuk", "Africa/Cairo", "Antarctica/Casey", "Australia/Lord_Howe", "Europe/Berlin"} {
		for _, hour := range []int{0, 1, 2, 3, 21, 22, 23} {
			checkOneTickADay(t, zone, hour, 30, "first")
			checkOneTickADay(t, zone, hour, 15, "last")
		}
	}
}

func checkOneTickADay(t *testing.T, zone string, hour, minute int, repeated string) {
	t.Helper()
	const years = 10
	s := mustParse(t, fmt.Sprintf("%d %d * * *", minute, hour), cronexpr.Options{Timezone: zone, DSTRepeated: repeated})
	day := time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC)
	last := day.AddDate(years, 0, 0)
	start := time.Date(2019, 1, 1, 0, 0, 0, 0, s.Zone()).Add(-time.Second)
	for at := range s.Between(start, start.AddDate(years, 0, 1)) {
		if !day.Before(last) {
			return
		}
		wall := wallClock(at, s.Zone())
		nominal := day.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)
		if late := wall.Sub(nominal); late < 0 || late > 3*time.Hour {
			t.Fatalf("%s at %02d:%02d: the tick of %s is at %s", zone, hour, minute, day.Format(time.DateOnly), at)
		}
		day = day.AddDate(0, 0, 1)
	}
	t.Fatalf("%s at %02d:%02d: the ticks end on %s", zone, hour, minute, day.Format(time.DateOnly))
}

func TestOneTickADayCount(t *testing.T) {
	t.Parallel()
	s := mustParse(t, "30 2 * * *", cronexpr.Options{Timezone: "Europe/Berlin"})
	if n := countTicks(s, instant(t, "2023-12-31T23:59:59+01:00"), instant(t, "2026-12-31T23:59:59+01:00")); n != 1096 {
		t.Errorf("%d ticks in 2024 to 2026, want 1096", n)
	}
}
