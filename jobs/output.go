package jobs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	flushInterval = 200 * time.Millisecond
	flushBytes    = 16 << 10
	flushTimeout  = 5 * time.Second
	// defaultCapture is how much of an attempt's output is kept.
	defaultCapture = 1 << 20
)

// saveFunc stores chunks in order.
type saveFunc func(ctx context.Context, chunks []jobstore.LogChunk) error

// output keeps one attempt's output on its way to the database, in chunks while
// the attempt runs. An attempt that writes nothing costs no goroutine and no
// statement. Output that cannot be stored is dropped and counted; it never
// fails the job.
type output struct {
	save   saveFunc
	logger *slog.Logger
	full   chan struct{} // a chunk's worth is pending
	stop   chan struct{}
	done   sync.WaitGroup

	mu      sync.Mutex
	capture int64
	pending []jobstore.LogChunk
	bytes   int               // pending
	tails   map[string][]byte // by stream: the start of a rune whose rest is to come
	total   int64
	kept    int64
	lost    int64 // kept at first, then not stored
	started bool
}

func newOutput(save saveFunc, logger *slog.Logger) *output {
	return &output{
		save: save, logger: logger, capture: defaultCapture,
		full: make(chan struct{}, 1), stop: make(chan struct{}), tails: map[string][]byte{},
	}
}

// limit sets the most bytes that are kept; 0 leaves the default.
func (o *output) limit(capture int) {
	if capture > 0 {
		o.capture = int64(capture)
	}
}

// stream returns the writer of one stream; it never fails.
func (o *output) stream(name string) io.Writer { return streamWriter{o, name} }

type streamWriter struct {
	output *output
	name   string
}

func (w streamWriter) Write(p []byte) (int, error) {
	w.output.write(w.name, p)
	return len(p), nil
}

// remark adds a line of forge's own, beyond the capture.
func (o *output) remark(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(jobstore.StreamSystem, line+"\n")
}

func (o *output) write(stream string, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += int64(len(p))
	p = p[:min(int64(len(p)), o.capture-o.kept)]
	o.kept += int64(len(p))
	text, tail := splitRunes(append(o.tails[stream], p...))
	o.tails[stream] = tail
	o.add(stream, text)
}

func (o *output) add(stream, text string) {
	if text == "" {
		return
	}
	if last := len(o.pending) - 1; last >= 0 && o.pending[last].Stream == stream && len(o.pending[last].Chunk) < flushBytes {
		o.pending[last].Chunk += text
	} else {
		o.pending = append(o.pending, jobstore.LogChunk{At: time.Now(), Stream: stream, Chunk: text})
	}
	o.bytes += len(text)
	if !o.started {
		o.started = true
		o.done.Go(o.flushLoop)
	}
	if o.bytes >= flushBytes {
		select {
		case o.full <- struct{}{}:
		default:
		}
	}
}

func (o *output) flushLoop() {
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-o.stop:
			return
		case <-ticker.C:
		case <-o.full:
		}
		o.flush(context.Background())
	}
}

func (o *output) flush(ctx context.Context) {
	o.mu.Lock()
	chunks, bytes := o.pending, o.bytes
	o.pending, o.bytes = nil, 0
	o.mu.Unlock()
	if len(chunks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := o.save(ctx, chunks); err != nil {
		o.logger.WarnContext(ctx, "output of a job dropped", "bytes", bytes, "error", err)
		o.mu.Lock()
		o.lost += int64(bytes)
		o.mu.Unlock()
	}
}

// close stores what is left, with a last line about what is missing, and ends
// the goroutine. It does so also when ctx has ended.
func (o *output) close(ctx context.Context) {
	close(o.stop)
	o.done.Wait()
	o.mu.Lock()
	o.started = true // no new goroutine
	for stream, tail := range o.tails {
		o.add(stream, safeText(tail))
	}
	if dropped := o.total - o.kept; dropped > 0 {
		o.add(jobstore.StreamSystem, fmt.Sprintf("%d bytes of output dropped: output.capture is %d bytes\n", dropped, o.capture))
	}
	o.mu.Unlock()
	o.flush(context.WithoutCancel(ctx))
}

// totals returns the bytes written and those of them that are not stored.
func (o *output) totals() (written, dropped int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total, o.total - o.kept + o.lost
}

// splitRunes returns the text up to the last whole rune, made safe, and the
// bytes of a rune that the next write may complete.
func splitRunes(p []byte) (text string, tail []byte) {
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		start := p[len(p)-back:]
		if !utf8.RuneStart(start[0]) {
			continue
		}
		if !utf8.FullRune(start) {
			return safeText(p[:len(p)-back]), append([]byte(nil), start...)
		}
		break
	}
	return safeText(p), nil
}

// safeText is text that PostgreSQL takes: valid UTF-8 without NUL.
func safeText(p []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(p), "\uFFFD"), "\x00", "\uFFFD")
}
