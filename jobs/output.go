package jobs

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// chunkBytes is the maximum length of an output row.
	chunkBytes = 64 << 10
	// chunkWeight is the memory that a chunk needs besides its text.
	chunkWeight = 256
	// pieceBytes is how much text is cleaned at once, because a worker may write any
	// length.
	pieceBytes = 16 << 10
	// maxInterleaved is how often two streams may alternate. After that, the lines of
	// each stream are combined, which loses their order but saves a row per line.
	maxInterleaved = 128
	// defaultCapture is how much of an attempt's output is kept.
	defaultCapture = 1 << 20
	// outputTimeout is how long the end of an attempt waits for its output to be stored.
	outputTimeout = 5 * time.Second
)

// output passes one attempt's output to the node's logWriter. Writing never waits for the
// database: output that finds no room is dropped and counted. An attempt without output
// needs no statement.
type output struct {
	logs    *logWriter
	jobID   int64
	attempt int
	capture int
	// retention is how long the output is kept; 0 means the general retention.
	retention time.Duration
	redact    *redactor

	// For the logWriter only: the number of the last row, and whether it is known.
	seq      int
	numbered bool
	// queued is guarded by the logWriter's lock.
	queued bool

	mu         sync.Mutex
	sources    map[string]*source // made with the first output
	pending    []*logPiece
	storing    *load
	weight     int // size of the output that is pending or being stored
	kept       int
	full       bool
	total      amount // written
	cut        amount // beyond the capture
	skipped    amount // dropped because there was no room
	unreported amount // part of skipped that no remark reports yet
	lost       amount // accepted, but then not stored
	closed     bool
	givenUp    bool          // nothing more will be stored
	stored     chan struct{} // made by finish if there is something left to store
}

// logPiece is a chunk that may still grow.
type logPiece struct {
	at     time.Time
	stream string
	text   []byte
}

// init prepares an empty output.
func (o *output) init(logs *logWriter, jobID int64, attempt int) {
	o.logs, o.jobID, o.attempt, o.capture = logs, jobID, attempt, defaultCapture
}

// configure sets how much output is kept (0 means the default), for how long, and which
// secrets are redacted. It must be called before anything is written.
func (o *output) configure(bounds config.Output, secrets *redactor) {
	if bounds.Capture > 0 {
		o.capture = bounds.Capture
	}
	o.retention, o.redact = bounds.Retention.Std(), secrets
}

// stream returns the writer of one stream. It never fails and never waits.
func (o *output) stream(name string) io.Writer { return streamWriter{o, name} }

type streamWriter struct {
	output *output
	name   string
}

func (w streamWriter) Write(p []byte) (int, error) {
	w.output.write(w.name, p)
	return len(p), nil
}

// remark adds a line of forge's own, which the capture does not limit.
func (o *output) remark(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.add(jobstore.StreamSystem, safeText([]byte(o.redact.text(line)))+"\n")
	}
}

func (o *output) write(stream string, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return // a worker that has returned is still writing
	}
	o.total.add(amountOf(p))
	s := o.sources[stream]
	if s == nil {
		s = &source{}
		if o.sources == nil {
			o.sources = map[string]*source{}
		}
		o.sources[stream] = s
	}
	for len(p) > 0 && !o.full {
		piece := p[:min(len(p), pieceBytes)]
		p = p[len(piece):]
		o.keep(stream, s.next(piece, o.redact))
	}
	o.cut.add(amountOf(p))
}

// keep adds text up to the capture.
func (o *output) keep(stream, text string) {
	if room := o.capture - o.kept; len(text) > room {
		for room > 0 && !utf8.RuneStart(text[room]) {
			room--
		}
		o.cut.add(amountOf(text[room:]))
		o.full, text = true, text[:room]
	}
	if o.add(stream, text) {
		o.kept += len(text)
	}
}

// add adds text to a chunk and reports whether there was room.
func (o *output) add(stream, text string) bool {
	if text == "" {
		return true
	}
	if o.unreported.bytes > 0 && o.put(jobstore.StreamSystem, o.gap()) {
		o.unreported = amount{}
	}
	if o.unreported.bytes > 0 || !o.put(stream, text) {
		o.skipped.add(amountOf(text))
		o.unreported.add(amountOf(text))
		return false
	}
	return true
}

func (o *output) gap() string {
	return fmt.Sprintf("%s of output dropped here: the database did not store it in time\n", o.unreported)
}

func (o *output) put(stream, text string) bool {
	piece, weight := o.growing(stream), len(text)
	if piece == nil {
		weight += chunkWeight
	}
	if !o.logs.reserve(o, weight) {
		return false
	}
	o.weight += weight
	if piece == nil {
		piece = &logPiece{at: time.Now(), stream: stream}
		o.pending = append(o.pending, piece)
	}
	piece.text = append(piece.text, text...)
	return true
}

// growing returns the chunk to which text of this stream is added, or nil for a new one.
func (o *output) growing(stream string) *logPiece {
	for _, piece := range slices.Backward(o.pending) {
		switch {
		case piece.stream == stream && len(piece.text) < chunkBytes:
			return piece
		case piece.stream == stream || len(o.pending) < maxInterleaved:
			return nil
		}
	}
	return nil
}

// close stores the remaining output, with a last line about missing output. It waits
// until all is stored, at most for outputTimeout, even if the attempt was cancelled.
func (o *output) close() {
	if o.finish() {
		return
	}
	o.logs.urge()
	timer := time.NewTimer(outputTimeout)
	defer timer.Stop()
	select {
	case <-o.stored:
		return
	case <-timer.C:
	case <-o.logs.abandoned:
	}
	o.giveUp()
}

// finish ends the streams and reports whether there is nothing left to store.
func (o *output) finish() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, stream := range []string{jobstore.StreamStdout, jobstore.StreamStderr} {
		switch s := o.sources[stream]; {
		case s == nil:
		case o.full: // the first part of a possible secret is not shown
			o.cut.add(amountOf(s.held))
		default:
			o.keep(stream, s.rest(o.redact))
		}
	}
	if o.unreported.bytes > 0 {
		o.put(jobstore.StreamSystem, o.gap())
	}
	if o.cut.bytes > 0 {
		o.put(jobstore.StreamSystem, fmt.Sprintf("%s of output dropped: output.capture is %d bytes\n", o.cut, o.capture))
	}
	o.closed = true
	if o.weight > 0 {
		o.stored = make(chan struct{})
	}
	return o.weight == 0
}

// load is the output of one attempt that is being stored.
type load struct {
	output *output
	pieces []*logPiece // until they are numbered
	rows   []jobstore.LogRow
	weight int
	amount amount
}

// take returns the pending output, or nil if there is none.
func (o *output) take() *load {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.storing = o.detach()
	return o.storing
}

func (o *output) detach() *load {
	if len(o.pending) == 0 {
		return nil
	}
	l := &load{output: o, pieces: o.pending}
	for _, piece := range o.pending {
		l.weight += len(piece.text) + chunkWeight
		l.amount.add(amountOf(piece.text))
	}
	o.pending = nil
	return l
}

// settle records that a load was stored or lost.
func (o *output) settle(l *load, stored bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.storing = nil
	o.forget(l, !stored && !o.givenUp)
	if o.closed && o.weight == 0 && !o.givenUp {
		close(o.stored)
	}
}

func (o *output) forget(l *load, lost bool) {
	o.weight -= l.weight
	o.logs.release(l.weight)
	if lost {
		o.lost.add(l.amount)
	}
}

// giveUp counts all output that is not stored as lost. A running statement may still
// store some of it.
func (o *output) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.weight == 0 {
		return // stored in the meantime
	}
	o.givenUp = true
	if o.storing != nil {
		o.lost.add(o.storing.amount)
	}
	if l := o.detach(); l != nil {
		o.forget(l, true)
	}
}

func (o *output) isGivenUp() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.givenUp
}

// totals returns how much was written, how much of that is not stored, and how much of
// that the database did not store in time.
func (o *output) totals() (written, dropped, unstored amount) {
	o.mu.Lock()
	defer o.mu.Unlock()
	unstored = o.skipped
	unstored.add(o.lost)
	dropped = o.cut
	dropped.add(unstored)
	return o.total, dropped, unstored
}
