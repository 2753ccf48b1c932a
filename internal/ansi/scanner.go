// Package ansi reads text that was written for a terminal. It keeps the colors and removes
// everything else that a terminal would obey: the text may come from anyone.
package ansi

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scanner splits text for a terminal into characters that can be shown and sequences that
// set colors. A sequence may be split between two calls of Scan, a character may not.
type Scanner struct {
	// Text receives each character that can be shown.
	Text func(r rune)
	// Color receives the parameters of each sequence that sets colors (SGR); nil ignores
	// them.
	Color func(params []byte)

	state  state
	params []byte // of a control sequence
	other  bool   // the sequence is not a color
	cr     bool   // a carriage return that may belong to a line end
}

type state int

const (
	inText     state = iota
	inEscape         // after ESC
	inSequence       // after ESC [
	inString         // a title, a link or the clipboard, up to BEL or ESC \
)

// maxParams bounds the parameters kept of a control sequence. Those of colors are shorter.
const maxParams = 64

// Scan reads more of the text.
func (s *Scanner) Scan(text string) {
	for _, r := range text {
		s.next(r)
	}
}

func (s *Scanner) next(r rune) {
	const escape, bell = '\x1b', '\a'
	switch {
	case r == escape:
		s.state = inEscape // even inside a string, which ESC \ ends
	case s.state == inEscape:
		s.escaped(r)
	case s.state == inSequence:
		s.sequence(r)
	case s.state == inString:
		if r == bell || r == '\n' { // an unterminated string hides at most one line
			s.state = inText
		}
	default:
		s.text(r)
	}
}

func (s *Scanner) escaped(r rune) {
	switch {
	case r == '[':
		s.state, s.params, s.other = inSequence, s.params[:0], false
	case strings.ContainsRune("]PX^_", r):
		s.state = inString
	case r < ' ' || r > '/': // characters up to '/' come before the last one of the sequence
		s.state = inText
	}
}

func (s *Scanner) sequence(r rune) {
	switch {
	case r >= '@' && r <= '~':
		s.state = inText
		if r == 'm' && s.Color != nil && !s.other {
			s.Color(s.params)
		}
	case r < ' ' || r > '~': // not a valid sequence
		s.state = inText
		s.text(r)
	case r >= '0' && r <= ';' && len(s.params) < maxParams:
		s.params = append(s.params, byte(r))
	default:
		s.other = true
	}
}

// text passes a character on. A carriage return becomes a line end, so that each state of a
// progress bar has its own line.
func (s *Scanner) text(r rune) {
	if s.cr && r != '\n' {
		s.Text('\n')
	}
	s.cr = r == '\r'
	switch {
	case r == '\n' || r == '\t':
		s.Text(r)
	case unicode.IsControl(r):
	case unicode.Is(unicode.Bidi_Control, r):
		s.Text(utf8.RuneError)
	default:
		s.Text(r)
	}
}

// Strip returns the characters of a text that can be shown, as valid UTF-8.
func Strip(text string) string {
	if !strings.ContainsFunc(text, special) {
		return text
	}
	var plain strings.Builder
	s := Scanner{Text: func(r rune) { plain.WriteRune(r) }}
	s.Scan(strings.ToValidUTF8(text, string(utf8.RuneError)))
	return plain.String()
}

// special reports whether Scan may change a character. Invalid bytes are read as RuneError.
func special(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}
