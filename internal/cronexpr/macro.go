package cronexpr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

var macros = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

const macroList = "@yearly, @monthly, @weekly, @daily, @hourly, @every 90s, @at 2027-01-01T00:00:00Z or @manual"

// Bounds of @every; the shortest interval is the resolution of ticks.
const (
	shortestEvery = time.Second
	longestEvery  = 366 * 24 * time.Hour
)

func (p *parser) macro(s *Schedule, words []word) error {
	name := strings.ToLower(words[0].text)
	fields, plain := macros[name]
	wanted := 1
	if name == "@every" || name == "@at" {
		wanted = 2
	}
	switch {
	case name == "@reboot":
		return p.fail(name, words[0].column, "a cluster does not reboot", "", macroList)
	case !plain && wanted == 1 && name != "@manual":
		return p.fail("macro", words[0].column, "unknown macro", words[0].text, macroList)
	case len(words) < wanted:
		return p.fail(name, words[0].column, "its value is missing", "", macroExample(name))
	case len(words) > wanted:
		return p.fail(name, words[wanted].column, "there is text behind it", words[wanted].text, macroExample(name))
	}
	switch name {
	case "@manual":
		s.kind = manualKind
		return nil
	case "@every":
		return p.every(s, words[1])
	case "@at":
		return p.at(s, words[1])
	}
	expanded := parser{expression: fields}
	return expanded.fields(s, expanded.words())
}

func macroExample(name string) string {
	switch name {
	case "@every":
		return `"@every 90s", or "@every 90s/15s" with a phase`
	case "@at":
		return `"@at 2027-01-01T00:00:00Z"`
	}
	return fmt.Sprintf("%q alone", name)
}

// every parses an interval and its optional phase.
func (p *parser) every(s *Schedule, w word) error {
	interval, phase, phased := strings.Cut(w.text, "/")
	every, err := p.seconds(word{interval, w.column})
	switch {
	case err != nil:
		return err
	case every < shortestEvery:
		return p.fail("@every", w.column, "the interval is too short", interval, "at least 1s")
	case every > longestEvery:
		return p.fail("@every", w.column, "the interval is too long", interval, "at most 366d")
	}
	s.kind, s.every = everyKind, int64(every/time.Second)
	if !phased {
		return nil
	}
	column := w.column + len(interval) + 1
	offset, err := p.seconds(word{phase, column})
	switch {
	case err != nil:
		return err
	case offset < 0 || offset >= every:
		return p.fail("@every", column, "the phase is not below the interval", w.text, "0s up to the interval")
	}
	s.phase = int64(offset / time.Second)
	return nil
}

// seconds parses a duration of whole seconds.
func (p *parser) seconds(w word) (time.Duration, error) {
	d, ok := duration(w.text)
	if !ok {
		return 0, p.fail("@every", w.column, "not a duration", w.text, `a number and a unit such as "90s", "5m" or "1d"`)
	}
	if d%time.Second != 0 {
		if 0 < d && d < time.Second {
			return 0, p.fail("@every", w.column, "a tick needs a whole second", w.text, "at least 1s")
		}
		return 0, p.fail("@every", w.column, "a tick needs a whole second", w.text, "whole seconds")
	}
	return d, nil
}

var durationUnits = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

// duration parses Go's durations and the units d and w, as in "1d12h". Values that are
// far too long are capped, so that nothing overflows.
func duration(text string) (time.Duration, bool) {
	const digits, cut = "0123456789.", 2 * longestEvery
	sign := time.Duration(1)
	rest, negative := strings.CutPrefix(text, "-")
	if negative {
		sign = -1
	}
	var total time.Duration
	for first := true; first || rest != ""; first = false {
		tail := strings.TrimLeft(rest, digits)
		next := strings.IndexAny(tail+"0", digits)
		count, err := strconv.ParseFloat(rest[:len(rest)-len(tail)], 64)
		unit, ok := durationUnits[tail[:next]]
		if !ok || err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, false
		}
		total = min(total+time.Duration(min(count*float64(unit), float64(cut))), cut)
		rest = tail[next:]
	}
	return total * sign, true
}

// at parses an instant.
func (p *parser) at(s *Schedule, w word) error {
	at, err := time.Parse(time.RFC3339, w.text)
	switch {
	case err != nil:
		return p.fail("@at", w.column, "not a time with a zone", w.text, `RFC 3339 such as "2027-01-01T00:00:00Z"`)
	case at.Nanosecond() != 0:
		return p.fail("@at", w.column, "a tick needs a whole second", w.text, "no fraction")
	}
	s.kind, s.at = atKind, at.Unix()
	return nil
}
