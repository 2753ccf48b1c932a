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
	// chunkBytes is how long a row of output grows.
	chunkBytes = 64 << 10
	// chunkWeight is what a chunk costs in memory beside its text.
	chunkWeight = 256
	// pieceBytes is how much is cleaned at a time: a worker may write any length.
	pieceBytes = 16 << 10
	// maxInterleaved is how often two streams may take turns before the lines of
	// each are put together, at the cost of their order: a row for every line
	// would be too many.
	maxInterleaved = 128
	// defaultCapture is how much of an attempt's output is kept.
	defaultCapture = 1 << 20
	// closePatience is how long the end of an attempt waits for its output to be
	// stored.
	closePatience = 5 * time.Second
)

// output is one attempt's output on its way to the node's logWriter. Writing
// never waits for the database: what finds no room is dropped and counted. An
// attempt that writes nothing costs no statement.
type output struct {
	logs    *logWriter
	jobID   int64
	attempt int
	capture int
	// retention is how long it is kept, 0 for as long as all output.
	retention time.Duration
	redact    *redactor

	// Of the writer: the number of the last row, and whether it is known.
	seq      int
	numbered bool
	// queued is guarded by the writer's lock.
	queued bool

	mu      sync.Mutex
	sources map[string]*source
	pending []*logPiece
	storing *load
	weight  int // of what is pending and of what is being stored
	kept    int
	full    bool
	total   amount // written
	cut     amount // beyond the capture
	skipped amount // for want of room
	untold  amount // of those, the ones that no remark tells of yet
	lost    amount // kept at first, then not stored
	closed  bool
	gone    bool // nothing of it is to be stored any more
	stored  chan struct{}
}

// logPiece is a chunk that may still grow.
type logPiece struct {
	at     time.Time
	stream string
	text   []byte
}

func newOutput(logs *logWriter, jobID int64, attempt int) *output {
	return &output{
		logs: logs, jobID: jobID, attempt: attempt, capture: defaultCapture,
		sources: map[string]*source{}, stored: make(chan struct{}),
	}
}

// configure sets how much is kept (0 leaves the default) and how long, and what is
// never shown, before anything is written.
func (o *output) configure(bounds config.Output, secrets *redactor) {
	if bounds.Capture > 0 {
		o.capture = bounds.Capture
	}
	o.retention, o.redact = bounds.Retention.Std(), secrets
}

// stream returns the writer of one stream; it never fails and never waits.
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
	if !o.closed {
		o.add(jobstore.StreamSystem, safeText([]byte(o.redact.text(line)))+"\n")
	}
}

func (o *output) write(stream string, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return // a worker that has returned writes on
	}
	o.total.add(amountOf(p))
	s := o.sources[stream]
	if s == nil {
		s = &source{}
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

// add puts text into a chunk and reports whether there was room for it.
func (o *output) add(stream, text string) bool {
	if text == "" {
		return true
	}
	if o.untold.bytes > 0 && o.put(jobstore.StreamSystem, o.gap()) {
		o.untold = amount{}
	}
	if o.untold.bytes > 0 || !o.put(stream, text) {
		o.skipped.add(amountOf(text))
		o.untold.add(amountOf(text))
		return false
	}
	return true
}

func (o *output) gap() string {
	return fmt.Sprintf("%s of output dropped here: the database did not take it in time\n", o.untold)
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

// growing returns the chunk that text of this stream goes into, nil for a new
// one.
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

// close hands over what is left, with a last line about what is missing, and
// waits until all is stored; not for ever, but whether the attempt was cancelled
// or not.
func (o *output) close() {
	if o.finish() {
		return
	}
	o.logs.urge()
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case <-o.stored:
		return
	case <-patience.C:
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
		case o.full: // the head of a secret is not shown for want of its rest
			o.cut.add(amountOf(s.held))
		default:
			o.keep(stream, s.rest(o.redact))
		}
	}
	if o.untold.bytes > 0 {
		o.put(jobstore.StreamSystem, o.gap())
	}
	if o.cut.bytes > 0 {
		o.put(jobstore.StreamSystem, fmt.Sprintf("%s of output dropped: output.capture is %d bytes\n", o.cut, o.capture))
	}
	o.closed = true
	return o.weight == 0
}

// load is what the writer stores of one attempt at a time.
type load struct {
	output *output
	pieces []*logPiece // until they are numbered
	rows   []jobstore.LogRow
	weight int
	amount amount
}

// take hands what is pending to the writer, nil where there is nothing.
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

// settle ends the wait for what was taken, which is stored or lost.
func (o *output) settle(l *load, stored bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.storing = nil
	o.forget(l, !stored && !o.gone)
	if o.closed && o.weight == 0 && !o.gone {
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

// giveUp counts all that is not stored as lost. A statement that is under way may
// store some of it yet.
func (o *output) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.weight == 0 {
		return // stored at the last moment
	}
	o.gone = true
	if o.storing != nil {
		o.lost.add(o.storing.amount)
	}
	if l := o.detach(); l != nil {
		o.forget(l, true)
	}
}

func (o *output) isGone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}

// totals returns what was written, what of it is not stored, and what of that the
// database did not take.
func (o *output) totals() (written, dropped, untaken amount) {
	o.mu.Lock()
	defer o.mu.Unlock()
	untaken = o.skipped
	untaken.add(o.lost)
	dropped = o.cut
	dropped.add(untaken)
	return o.total, dropped, untaken
}
