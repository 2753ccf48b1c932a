package cronexpr

import (
	"fmt"
	"strings"
)

// ParseError says what is wrong with an expression or with one of its options.
type ParseError struct {
	// Expression is the whole expression as it was given.
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

// Error is one sentence without the position.
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

// shorten keeps a message readable however long the input was.
func shorten(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return s
}
