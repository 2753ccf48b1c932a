package main

import (
	"bytes"
	"io"

	"github.com/forge-scheduler/forge/internal/ansi"
)

// plainText writes text to a terminal without control sequences other than colours. A sequence may
// be split between two writes, a rune may not.
type plainText struct {
	out     io.Writer
	scanner ansi.Scanner
	painted bool
	buf     bytes.Buffer
}

func newPlainText(out io.Writer, colors bool) *plainText {
	p := &plainText{out: out}
	p.scanner.Text = func(r rune) { p.buf.WriteRune(r) }
	if colors {
		p.scanner.Color = func(params []byte) {
			p.painted = true
			p.buf.WriteString("\x1b[" + string(params) + "m")
		}
	}
	return p
}

// Write implements [io.Writer].
func (p *plainText) Write(text []byte) (int, error) {
	p.buf.Reset()
	p.scanner.Scan(string(text))
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
