package cronexpr

import (
	"strings"
	"time"
)

// Exclusion is a set of instants at which a cron does not fire: a day, or the times that
// an expression matches. It is immutable and safe for concurrent use.
type Exclusion struct {
	text string
	zone *time.Location
	// day is the civil second at which the excluded day begins; it is used when
	// expression is nil.
	day        int64
	expression *Schedule
	seconds    bool // the expression names seconds
}

// ParseExclusion parses a date such as 2026-12-25, which means the whole day in the
// cron's zone, or an expression of five or six fields. Five fields cover every second of
// the minutes that they match. Errors are the same as those of Parse.
func ParseExclusion(text string, o Options) (*Exclusion, error) {
	trimmed := strings.TrimSpace(text)
	zone, err := LoadZone(o.Timezone)
	if err != nil {
		return nil, err
	}
	e := &Exclusion{text: trimmed, zone: zone}
	if !strings.ContainsAny(trimmed, " \t") && !strings.HasPrefix(trimmed, "@") {
		day, err := time.Parse(time.DateOnly, trimmed)
		if err != nil {
			return nil, &ParseError{
				Expression: text, Field: "date", Problem: "it is neither a date nor an expression", Found: text,
				Want: "a date that exists, such as 2026-12-25, or " + fieldCounts,
			}
		}
		e.day = day.Unix()
		return e, nil
	}
	if e.expression, err = Parse(trimmed, Options{Name: o.Name, Timezone: o.Timezone}); err != nil {
		return nil, err
	}
	if e.expression.kind != calendarKind {
		return nil, &ParseError{
			Expression: text, Field: "expression", Problem: "it names no times on the wall", Found: text,
			Want: "a date such as 2026-12-25, or " + fieldCounts,
		}
	}
	e.seconds = len(strings.Fields(trimmed)) == len(allFields)
	return e, nil
}

// Covers reports whether an instant is excluded.
func (e *Exclusion) Covers(at time.Time) bool {
	_, offset := at.In(e.zone).Zone()
	civil := at.Unix() + int64(offset)
	if e.expression == nil {
		return e.day <= civil && civil < e.day+daySeconds
	}
	if !e.seconds {
		civil -= floorMod(civil, 60)
	}
	return e.expression.calendar.matches(civil)
}

// String returns the exclusion as given.
func (e *Exclusion) String() string { return e.text }

// matches reports whether the fields match a civil second.
func (c *calendar) matches(civil int64) bool {
	midnight, ofDay := splitDay(civil)
	year, of, day := time.Unix(midnight, 0).UTC().Date()
	if c.dayMask(month{year, of})&(1<<day) == 0 {
		return false
	}
	second, ok := c.nextOfDay(ofDay)
	return ok && second == ofDay
}
