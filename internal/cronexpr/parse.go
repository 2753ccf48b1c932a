package cronexpr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Options are the settings of a cron that Parse needs besides the expression.
type Options struct {
	// Name is the cron's name, the seed of H.
	Name string
	// Timezone is an IANA name; empty means UTC.
	Timezone string
	// DSTMissing is the treatment of a fixed-time tick in a gap: "run-after" (the
	// default), "shift" or "skip".
	DSTMissing string
	// DSTRepeated selects which of two equal wall-clock times counts for a fixed-time
	// cron: "first" (the default), "last" or "both".
	DSTRepeated string
}

// The values of Options.DSTMissing and Options.DSTRepeated.
const (
	RunAfter = "run-after"
	Shift    = "shift"
	Skip     = "skip"
	First    = "first"
	Last     = "last"
	Both     = "both"
)

// maxLength bounds an expression, in bytes.
const maxLength = 1000

// Parse parses an expression of five fields, of six with leading seconds, or a macro.
// Every error that the user can fix is a *ParseError.
func Parse(expression string, o Options) (*Schedule, error) {
	p := parser{expression: expression, seed: o.Name}
	if err := p.checkText(); err != nil {
		return nil, err
	}
	s := &Schedule{expression: strings.TrimSpace(expression)}
	if err := p.options(s, o); err != nil {
		return nil, err
	}
	if err := p.expressionInto(s); err != nil {
		return nil, err
	}
	return s, nil
}

func (p *parser) expressionInto(s *Schedule) error {
	words := p.words()
	switch {
	case len(words) == 0:
		return p.fail("expression", 0, "it is empty", "", fieldCounts)
	case strings.HasPrefix(words[0].text, "@"):
		return p.macro(s, words)
	}
	return p.fields(s, words)
}

const fieldCounts = "5 fields, or 6 with leading seconds"

// parser holds the data that all errors of one expression share.
type parser struct {
	expression string
	seed       string
}

// word is a part of the expression and its column, from 1.
type word struct {
	text   string
	column int
}

func (p *parser) fail(field string, column int, problem, found, want string) *ParseError {
	return &ParseError{
		Expression: p.expression, Field: field, Position: column,
		Problem: problem, Found: found, Want: want,
	}
}

// checkText rejects text that no expression contains. Text that passes is ASCII.
func (p *parser) checkText() error {
	if len(p.expression) > maxLength {
		return p.fail("expression", maxLength+1, "it is too long", p.expression,
			fmt.Sprintf("at most %d characters", maxLength))
	}
	column := 0
	for _, r := range p.expression {
		column++
		switch {
		case r == '\n' || r == '\r':
			return p.fail("expression", column, "it has a line break", string(r), "one line")
		case r >= utf8.RuneSelf:
			return p.fail("expression", column, "a character is not ASCII", string(r),
				"plain digits, letters and signs")
		case r < ' ' && r != '\t' || r == 0x7f:
			return p.fail("expression", column, "it has a control character", string(r), "printable text")
		}
	}
	if i := strings.Index(strings.ToUpper(p.expression), "TZ="); i >= 0 {
		return p.fail("expression", i+1, "a time zone does not belong here", p.expression,
			"the zone in the key timezone")
	}
	return nil
}

// options resolves the zone and the two policies.
func (p *parser) options(s *Schedule, o Options) error {
	zone, err := LoadZone(o.Timezone)
	if err != nil {
		if e, ok := errors.AsType[*ParseError](err); ok {
			e.Expression = p.expression
		}
		return err
	}
	s.zone = zone
	s.dstMissing, err = p.oneOf("dst_missing", o.DSTMissing, RunAfter, Shift, Skip)
	if err != nil {
		return err
	}
	s.dstRepeated, err = p.oneOf("dst_repeated", o.DSTRepeated, First, Last, Both)
	return err
}

// oneOf returns the value if it is one of the three, and the first for "".
func (p *parser) oneOf(key, value, first, second, third string) (string, error) {
	switch value {
	case "":
		return first, nil
	case first, second, third:
		return value, nil
	}
	return "", p.fail(key, 0, "unknown value", value, fmt.Sprintf("%q, %q or %q", first, second, third))
}

// words splits at blanks and tabs.
func (p *parser) words() []word {
	var words []word
	start := -1
	for i, r := range p.expression + " " {
		blank := r == ' ' || r == '\t'
		switch {
		case !blank && start < 0:
			start = i
		case blank && start >= 0:
			words = append(words, word{p.expression[start:i], start + 1})
			start = -1
		}
	}
	return words
}

// fields parses an expression that is not a macro.
func (p *parser) fields(s *Schedule, words []word) error {
	if len(words) != 5 && len(words) != 6 {
		return p.fail("expression", words[0].column, plural(len(words), "field"), p.expression, fieldCounts)
	}
	specs := allFields[:]
	s.calendar.second = 1
	if len(words) == 5 {
		specs = allFields[1:]
	}
	for i, spec := range specs {
		f := fieldParser{parser: p, spec: spec, word: words[i]}
		if err := f.parse(); err != nil {
			return err
		}
		f.store(s)
	}
	s.kind = calendarKind
	if _, ok := s.calendar.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()); !ok {
		return p.neverFires(s, words[len(words)-3:])
	}
	return nil
}

// neverFires explains why no day matches.
func (p *parser) neverFires(s *Schedule, days []word) error {
	found := strings.Join([]string{days[0].text, days[1].text, days[2].text}, " ")
	want := "a day that exists"
	if s.calendar.dow.days == 1<<7-1 {
		longest := 0
		for of := range ones(uint64(s.calendar.month)) {
			longest = max(longest, month{2000, time.Month(of)}.length())
		}
		want = fmt.Sprintf("a day up to %d in %s", longest, monthList(s.calendar.month, "or"))
	}
	return p.fail("day-of-month", days[0].column, "it never fires, no such date exists", found, want)
}

// ParseError describes an error in an expression or in one of its options.
type ParseError struct {
	// Expression is the whole expression as given.
	Expression string
	// Field is the part that is wrong: "minute", "@every", "timezone", ...
	Field string
	// Position is the column in Expression, in characters from 1; 0 when the
	// error is not in the expression but in an option.
	Position int
	// Problem is what is wrong, as half a sentence.
	Problem string
	// Found is the text that is wrong; it may be empty.
	Found string
	// Want is what would be right, as half a sentence.
	Want string
}

// Error returns one sentence, without the position.
func (e *ParseError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Field, e.Problem)
	if e.Found != "" {
		fmt.Fprintf(&b, " (got %q)", shorten(e.Found))
	}
	if e.Want != "" {
		b.WriteString("; want " + e.Want)
	}
	return b.String()
}

// shorten cuts long input, so that the message stays readable.
func shorten(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return s
}

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
