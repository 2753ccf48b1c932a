package main

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainText passes text on to a terminal without what could do more than show
// text: of escape sequences only colours are left, wherever a sequence is split.
// Text comes in whole runes.
type plainText struct {
	out    io.Writer
	colors bool

	state   textState
	params  []byte // of a control sequence
	other   bool   // it is no colour
	painted bool
	cr      bool // a carriage return that may belong to a line end
	buf     bytes.Buffer
}

type textState int

const (
	inText     textState = iota
	inEscape             // after ESC
	inSequence           // after ESC [
	inString             // a title, a link, the clipboard: up to BEL or ESC \
)

// maxParams bounds what is kept of a control sequence; colours are shorter.
const maxParams = 32

// Write is part of io.Writer.
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

// Close gives the terminal its own colours back.
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
		p.state = inEscape // also inside a string: what follows ends it
	case p.state == inEscape:
		p.escaped(r)
	case p.state == inSequence:
		p.sequence(r)
	case p.state == inString:
		if r == bell || r == '\n' { // a string that never ends hides one line at most
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
	case r < ' ' || r > '/': // the latter stand between ESC and its end
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
	case r < ' ' || r > '~': // no sequence after all
		p.state = inText
		p.text(r)
	case r >= '0' && r <= ';' && len(p.params) < maxParams:
		p.params = append(p.params, byte(r))
	default:
		p.other = true
	}
}

// text writes a progress bar's carriage returns as line ends.
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
