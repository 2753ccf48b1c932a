package cronexpr

import (
	"fmt"
	"strings"
)

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
