package main

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainText writes text to a terminal without control sequences other than colours. A sequence may
// be split between two writes, a rune may not.
type plainText struct {
	out    io.Writer
	colors bool

	state   textState
	params  []byte // of a control sequence
	other   bool   // the sequence is not a colour
	painted bool
	cr      bool // a carriage return that may belong to a line end
	buf     bytes.Buffer
}

type textState int

const (
	inText     textState = iota
	inEscape             // after ESC
	inSequence           // after ESC [
	inString             // a title, a link or the clipboard, up to BEL or ESC \
)

// maxParams bounds the parameters kept of a control sequence. Those of a colour are shorter.
const maxParams = 32

// Write implements [io.Writer].
func (p *plainText) Write(text []byte) (int, error) {
	p.buf.Reset()
	for _, r := range string(text) {
		p.next(r)
	}
	if _, err := p.out.Write(p.buf.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Close resets the terminal's colours.
func (p *plainText) Close() error {
	if !p.painted {
		return nil
	}
	_, err := io.WriteString(p.out, "\x1b[0m")
	return err
}

func (p *plainText) next(r rune) {
	const escape, bell = '\x1b', '\a'
	switch {
	case r == escape:
		p.state = inEscape // even inside a string, which ESC \ ends
	case p.state == inEscape:
		p.escaped(r)
	case p.state == inSequence:
		p.sequence(r)
	case p.state == inString:
		if r == bell || r == '\n' { // an unterminated string hides at most one line
			p.state = inText
		}
	default:
		p.text(r)
	}
}

func (p *plainText) escaped(r rune) {
	switch {
	case r == '[':
		p.state, p.params, p.other = inSequence, p.params[:0], false
	case strings.ContainsRune("]PX^_", r):
		p.state = inString
	case r < ' ' || r > '/': // characters up to '/' come before the last one of the sequence
		p.state = inText
	}
}

func (p *plainText) sequence(r rune) {
	switch {
	case r >= '@' && r <= '~':
		p.state = inText
		if r == 'm' && p.colors && !p.other {
			p.painted = true
			p.buf.WriteString("\x1b[" + string(p.params) + "m")
		}
	case r < ' ' || r > '~': // not a valid sequence
		p.state = inText
		p.text(r)
	case r >= '0' && r <= ';' && len(p.params) < maxParams:
		p.params = append(p.params, byte(r))
	default:
		p.other = true
	}
}

// text writes a rune. A carriage return becomes a line end, so that each state of a progress bar has
// its own line.
func (p *plainText) text(r rune) {
	if p.cr && r != '\n' {
		p.buf.WriteByte('\n')
	}
	p.cr = r == '\r'
	switch {
	case r == '\n' || r == '\t':
		p.buf.WriteRune(r)
	case unicode.IsControl(r):
	case unicode.Is(unicode.Bidi_Control, r):
		p.buf.WriteRune(utf8.RuneError)
	default:
		p.buf.WriteRune(r)
	}
}
