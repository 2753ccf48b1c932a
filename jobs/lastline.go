package jobs

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/internal/ansi"
)

const (
	// tailBytes is how much of the end of a stream is searched for its last line.
	tailBytes = 4 << 10
	// maxLastLine bounds the last line in an error, in bytes.
	maxLastLine = 400
)

// tailWriter passes a stream on and keeps its end, without secrets.
type tailWriter struct {
	io.Writer

	secrets *redactor

	mu   sync.Mutex
	tail []byte
	held []byte // may be the start of a secret
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.keep(p)
	return w.Writer.Write(p)
}

func (w *tailWriter) keep(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clean, held := w.secrets.redactPart(append(w.held, p...))
	w.held = bytes.Clone(held)
	if len(clean) > tailBytes {
		w.tail, clean = w.tail[:0], clean[len(clean)-tailBytes:]
	}
	if w.tail = append(w.tail, clean...); len(w.tail) > 2*tailBytes {
		w.tail = append(w.tail[:0], w.tail[len(w.tail)-tailBytes:]...)
	}
}

// lastLine returns the last line of the stream that is not blank, without secrets, colors and
// control characters; empty if there is none. Secrets are removed again at the end, because a
// sequence may have split one.
func (w *tailWriter) lastLine() string {
	w.mu.Lock()
	text := string(w.tail) + w.secrets.text(string(w.held))
	w.mu.Unlock()
	text = strings.TrimSpace(w.secrets.text(ansi.Strip(text)))
	return shorten(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]))
}

// shorten cuts a line to maxLastLine bytes.
func shorten(line string) string {
	if len(line) <= maxLastLine {
		return line
	}
	end := maxLastLine
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}
