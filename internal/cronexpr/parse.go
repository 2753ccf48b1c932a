package cronexpr

import (
	"errors"
	"fmt"
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
