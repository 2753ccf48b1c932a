// Package filter parses the filters of lists. A filter is a list of terms with blanks
// between them:
//
//	kind:send* node:node-2 took:>10s error:"time out" since:2h
//
// A row matches if it matches each key; of several terms with the same key, one is enough.
// An exception are durations and instants, of which each must match. In texts, * stands for any
// characters. In quotes, blanks and * stand for themselves, and \" is a quotation mark.
package filter

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/internal/config"
)

// Type is the type of a key's values.
type Type int

const (
	// Text is a text with * for any characters.
	Text Type = iota
	// Choice is one of the key's values.
	Choice
	// Duration is a duration after > or <.
	Duration
	// Instant is an instant in RFC 3339, or how long ago it was.
	Instant
)

// Key is a key of a list's filters.
type Key struct {
	Name string
	Type Type
	// Values are the values of a Choice.
	Values []string
	// Example is a value, About says what the key selects.
	Example, About string
}

// Term is one condition of a filter.
type Term struct {
	Key string
	// Text is the value of a Text or Choice.
	Text Pattern
	// Longer reports that a Duration was given after >.
	Longer bool
	// Span is a Duration, or how long ago an Instant was; zero if At is set.
	Span time.Duration
	At   time.Time

	value string
}

// String returns the term as it is written in a filter.
func (t Term) String() string { return t.Key + ":" + t.value }

// instant returns the instant of an Instant.
func (t Term) instant(now time.Time) time.Time {
	if t.At.IsZero() {
		return now.Add(-t.Span)
	}
	return t.At
}

// Filter is a parsed filter. A nil filter matches every row.
type Filter struct{ terms []Term }

// New returns a filter with these terms, nil for none.
func New(terms ...Term) *Filter {
	if len(terms) == 0 {
		return nil
	}
	return &Filter{terms}
}

// Terms returns the terms in their order.
func (f *Filter) Terms() []Term {
	if f == nil {
		return nil
	}
	return f.terms
}

// Of returns the terms with a key.
func (f *Filter) Of(key string) []Term {
	return slices.DeleteFunc(slices.Clone(f.Terms()), func(t Term) bool { return t.Key != key })
}

// String returns the filter in the form that Parse reads.
func (f *Filter) String() string {
	words := make([]string, len(f.Terms()))
	for i, t := range f.Terms() {
		words[i] = t.String()
	}
	return strings.Join(words, " ")
}

// Is returns a term that a text matches as a whole, even if it contains *.
func Is(key, text string) Term {
	return Term{Key: key, Text: Pattern{text}, value: quoted(text)}
}

// Error is a mistake in a filter.
type Error struct {
	// At is the position of the mistake in characters, from 1.
	At          int
	Found, Want string
}

func (e *Error) Error() string {
	return fmt.Sprintf("filter, character %d: found %s, want %s", e.At, e.Found, e.Want)
}

// maxText is the length of a filter in bytes. Each row is compared with each term.
const maxText = 8 << 10

// Parse parses a filter of a list with these keys. Its errors are of type *Error.
func Parse(text string, keys []Key) (*Filter, error) {
	p := parser{text: text}
	if len(text) > maxText {
		return nil, p.fail(0, fmt.Sprintf("%d bytes", len(text)), fmt.Sprintf("at most %d", maxText))
	}
	var terms []Term
	for p.skipBlanks(); p.at < len(p.text); p.skipBlanks() {
		t, err := p.term(keys)
		if err != nil {
			return nil, err
		}
		terms = append(terms, t)
	}
	return New(terms...), nil
}

type parser struct {
	text string
	at   int // in bytes
}

func (p *parser) skipBlanks() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeftFunc(p.text[p.at:], unicode.IsSpace))
}

// fail returns an error at a byte of the text.
func (p *parser) fail(at int, found, want string) error {
	return &Error{At: utf8.RuneCountInString(p.text[:at]) + 1, Found: found, Want: want}
}

func (p *parser) term(keys []Key) (t Term, err error) {
	start := p.at
	word := p.text[start:]
	if end := strings.IndexFunc(word, unicode.IsSpace); end >= 0 {
		word = word[:end]
	}
	name, _, ok := strings.Cut(word, ":")
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	i := slices.Index(names, name)
	switch {
	case !ok:
		return t, p.fail(start, fmt.Sprintf("%q", word), fmt.Sprintf("KEY:VALUE, such as %s:%s", keys[0].Name, keys[0].Example))
	case i < 0:
		want := "one of " + strings.Join(names, ", ")
		if near := config.Nearest(name, names); near != "" {
			want = fmt.Sprintf("%q", near)
		}
		return t, p.fail(start, fmt.Sprintf("the key %q", name), want)
	}
	p.at += len(name) + 1
	begin := p.at
	value, err := p.value()
	if err != nil {
		return t, err
	}
	if t, ok = keys[i].term(value, p.text[begin:p.at]); !ok {
		return t, p.fail(begin, fmt.Sprintf("%q", p.text[begin:p.at]), keys[i].want())
	}
	return t, nil
}

// value reads a value up to the next blank outside of quotes.
func (p *parser) value() (Pattern, error) {
	pattern := Pattern{""}
	last := func() *string { return &pattern[len(pattern)-1] }
	quote := -1 // where the open quotes begin
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			if quote >= 0 {
				quote = -1
			} else {
				quote = p.at
			}
		case c == '\\' && quote >= 0 && p.at+1 < len(p.text) && strings.ContainsRune(`"\`, rune(p.text[p.at+1])):
			p.at++
			*last() += p.text[p.at : p.at+1]
		case quote < 0 && c == '*':
			pattern = append(pattern, "")
		case quote < 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			return pattern, nil
		default:
			*last() += p.text[p.at : p.at+1]
		}
	}
	if quote >= 0 {
		return nil, p.fail(quote, "quotes without an end", `another "`)
	}
	return pattern, nil
}

// term returns the term of a value; ok is false if the key has no such values.
func (k Key) term(value Pattern, source string) (t Term, ok bool) {
	t = Term{Key: k.Name, Text: value, value: source}
	text, exact := value.Exact()
	switch k.Type {
	case Choice:
		return t, exact && slices.Contains(k.Values, text)
	case Duration:
		t.Longer = strings.HasPrefix(text, ">")
		span, err := config.ParseDuration(strings.TrimLeft(text, "<>"))
		t.Span = span.Std()
		return t, exact && err == nil && len(text) > 1 && strings.Trim(text[:1], "<>") == "" && strings.Trim(text[1:2], "<>") != ""
	case Instant:
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			t.At = at
			return t, exact
		}
		span, err := config.ParseDuration(text)
		t.Span = span.Std()
		return t, exact && err == nil && span > 0
	case Text:
	}
	return t, source != ""
}

// want describes the values of a key.
func (k Key) want() string {
	switch k.Type {
	case Choice:
		return "one of " + strings.Join(k.Values, ", ")
	case Duration:
		return fmt.Sprintf("> or < and a duration, such as %s:%s", k.Name, k.Example)
	case Instant:
		return fmt.Sprintf("how long ago, or an instant in RFC 3339, such as %s:%s or %s:2026-11-20T02:00:00Z", k.Name, k.Example, k.Name)
	case Text:
	}
	return fmt.Sprintf("a text, such as %s:%s", k.Name, k.Example)
}
