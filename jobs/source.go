package jobs

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// source converts one stream of an attempt to text that can be stored and shown.
type source struct {
	held []byte // may be the start of a secret
	tail []byte // the start of an incomplete rune
}

// next returns the text that can be shown after another piece of the stream.
func (s *source) next(piece []byte, secrets *redactor) (text string) {
	if len(s.held) > 0 {
		piece = append(s.held, piece...)
	}
	clean, held := secrets.redactPart(piece)
	s.held = bytes.Clone(held)
	if len(s.tail) > 0 {
		clean = append(s.tail, clean...)
	}
	text, s.tail = splitRunes(clean)
	return text
}

// rest returns the text that is left at the end of the stream.
func (s *source) rest(secrets *redactor) string {
	return safeText(append(s.tail, secrets.text(string(s.held))...))
}

// splitRunes returns the sanitized text up to the last complete rune, and the bytes of a
// rune that the next write may complete.
func splitRunes(p []byte) (text string, tail []byte) {
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		start := p[len(p)-back:]
		if !utf8.RuneStart(start[0]) {
			continue
		}
		if !utf8.FullRune(start) {
			return safeText(p[:len(p)-back]), bytes.Clone(start)
		}
		break
	}
	return safeText(p), nil
}

// safeText returns text that PostgreSQL accepts: valid UTF-8 without NUL.
func safeText(p []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(p), "\uFFFD"), "\x00", "\uFFFD")
}

// amount is an amount of output.
type amount struct{ bytes, lines int64 }

func amountOf[T string | []byte](text T) amount {
	return amount{bytes: int64(len(text)), lines: int64(countLines(text))}
}

func countLines[T string | []byte](text T) int {
	if p, ok := any(text).([]byte); ok {
		return bytes.Count(p, []byte("\n"))
	}
	return strings.Count(string(text), "\n")
}

func (a *amount) add(b amount) {
	a.bytes += b.bytes
	a.lines += b.lines
}

// String describes the amount.
func (a amount) String() string {
	switch a.lines {
	case 0:
		return fmt.Sprintf("%d bytes", a.bytes)
	case 1:
		return fmt.Sprintf("1 line (%d bytes)", a.bytes)
	default:
		return fmt.Sprintf("%d lines (%d bytes)", a.lines, a.bytes)
	}
}
