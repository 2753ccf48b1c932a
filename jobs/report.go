package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// maxReport bounds what is read of a report, maxReportLine one line of it, and maxResult
	// its result.
	maxReport     = 1 << 20
	maxReportLine = 66 << 10
	maxResult     = config.MaxArgs - len(resultPrefix) - len(resultSuffix)
	// resultPrefix and resultSuffix make an object of a result, which is checked as arguments are.
	resultPrefix, resultSuffix = `{"result":`, `}`
	// maxMessage is the maximum length of a message and of a reason, in bytes.
	maxMessage = 500
	// maxReportRemarks is how many bad lines are named in the output.
	maxReportRemarks = 10
	// reportInterval is how often a report is read and its progress is stored.
	reportInterval = time.Second
	// progressTimeout bounds the statement that stores progress.
	progressTimeout = 2 * time.Second
)

// reportLine is a line of a report. docs/workers.md describes it.
type reportLine struct {
	Progress *float64        `json:"progress"`
	Message  *string         `json:"message"`
	Result   json.RawMessage `json:"result"`
	Snooze   *string         `json:"snooze"`
	Cancel   *string         `json:"cancel"`
	Discard  *string         `json:"discard"`
}

// report reads what the work of an attempt reports, line by line. A bad line changes
// nothing but is named in the output.
type report struct {
	attempt *attempt
	// store stores progress; it may be slow.
	store func(ctx context.Context, progress jobstore.Progress) error
	// poll reads more of the report; nil if it is written by others.
	poll func(into io.Writer)

	ticking sync.Mutex // held while timer's function runs
	timer   *time.Timer
	closed  bool // guarded by ticking

	mu       sync.Mutex
	held     []byte // the beginning of a line
	tooLong  bool   // the line that held begins
	read     int
	number   int // of the last line, from 1
	bad      int
	result   json.RawMessage
	progress *jobstore.Progress
	unstored bool // progress has changed since it was stored
	ask      *ask
}

// newReport returns the report of an attempt. Its progress is stored every second until
// close.
func newReport(a *attempt, store func(context.Context, jobstore.Progress) error, poll func(io.Writer)) *report {
	r := &report{attempt: a, store: store, poll: poll}
	r.ticking.Lock()
	defer r.ticking.Unlock()
	r.timer = time.AfterFunc(reportInterval, r.tick)
	return r
}

func (r *report) tick() {
	r.ticking.Lock()
	defer r.ticking.Unlock()
	if r.closed {
		return
	}
	if r.poll != nil {
		r.poll(r)
	}
	r.storeProgress()
	r.timer.Reset(reportInterval)
}

// storeProgress stores the progress if it has changed. An error does not matter: the end of
// the attempt stores it too.
func (r *report) storeProgress() {
	r.mu.Lock()
	changed := r.unstored
	r.unstored = false
	var progress jobstore.Progress
	if changed {
		progress = *r.progress
	}
	r.mu.Unlock()
	if !changed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), progressTimeout)
	defer cancel()
	_ = r.store(ctx, progress)
}

// close reads the rest, and records result and progress in the metadata of the job, with the
// attempt's result.
func (r *report) close(ctx context.Context) {
	r.timer.Stop()
	r.ticking.Lock()
	r.closed = true
	if r.poll != nil {
		r.poll(r)
	}
	r.ticking.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) > 0 || r.tooLong {
		r.line()
	}
	if extra := r.bad - maxReportRemarks; extra > 0 {
		r.attempt.output.remark(fmt.Sprintf("report: %d more bad lines", extra))
	}
	if r.result != nil {
		_ = river.RecordOutput(ctx, r.result) // it is small JSON
	}
	if r.progress != nil {
		_ = river.MetadataSet(ctx, jobstore.KeyProgress, r.progress)
	}
}

// Write reads lines. It never fails.
func (r *report) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	room := maxReport - r.read
	cut := len(p) > room
	if cut {
		p = p[:max(0, room)]
		r.read = maxReport + 1
	}
	r.read += len(p)
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte("\n"))
		if len(r.held)+len(part) > maxReportLine {
			r.held, r.tooLong = nil, true
		}
		if !r.tooLong {
			r.held = append(r.held, part...)
		}
		if ended {
			r.line()
		}
		p = rest
	}
	if cut && room >= 0 { // the first time
		r.held, r.tooLong = nil, false
		r.attempt.output.remark(fmt.Sprintf("report: only the first %d KiB are read", maxReport>>10))
	}
	return n, nil
}

// line reads the line that is complete.
func (r *report) line() {
	text, tooLong := bytes.TrimSpace(r.held), r.tooLong
	r.held, r.tooLong = r.held[:0], false
	r.number++
	var err error
	switch {
	case tooLong:
		err = fmt.Errorf("longer than %d KiB", maxReportLine>>10)
	case len(text) > 0:
		err = r.take(text)
	}
	if err == nil {
		return
	}
	if r.bad++; r.bad <= maxReportRemarks {
		r.attempt.output.remark(fmt.Sprintf("report: line %d ignored: %v", r.number, err))
	}
}

// take checks all of a line before it takes any of it.
func (r *report) take(text []byte) error {
	if err := argschema.CheckDepth(text); err != nil {
		return err
	}
	var line reportLine
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&line); err != nil {
		return fmt.Errorf("%w; want an object with progress, message, result, snooze, cancel or discard", err)
	}
	if decoder.More() {
		return errors.New("more than one value; want one object a line")
	}
	result, err := r.resultOf(line.Result)
	if err != nil {
		return err
	}
	ask, err := askOf(line.Snooze, line.Cancel, line.Discard)
	if err != nil {
		return err
	}
	if line.Progress != nil && (*line.Progress < 0 || *line.Progress > 100) {
		return fmt.Errorf("progress is out of range (got %v); want 0 to 100", *line.Progress)
	}
	if ask != nil {
		ask.reason = shortText(r.attempt, ask.reason)
		r.ask = ask
	}
	if result != nil {
		r.result = result
	}
	if line.Progress != nil || line.Message != nil {
		r.advance(line)
	}
	return nil
}

func (r *report) advance(line reportLine) {
	next := jobstore.Progress{Attempt: r.attempt.Attempt, At: time.Now().UTC()}
	if r.progress != nil {
		next.Percent, next.Message = r.progress.Percent, r.progress.Message
	}
	next.Percent = cmp.Or(line.Progress, next.Percent)
	if line.Message != nil {
		next.Message = shortText(r.attempt, *line.Message)
	}
	r.progress, r.unstored = &next, true
}

// resultOf returns a result without secrets of the configuration.
func (r *report) resultOf(result json.RawMessage) (json.RawMessage, error) {
	if len(result) == 0 || string(result) == "null" {
		return nil, nil
	}
	if len(result) > maxResult {
		return nil, fmt.Errorf("the result has %d bytes; want at most %d", len(result), maxResult)
	}
	if err := config.CheckArgs([]byte(resultPrefix + string(result) + resultSuffix)); err != nil { // jsonb refuses what it refuses
		return nil, errors.New(strings.NewReplacer("args.result", "result", "args:", "result:").Replace(err.Error()))
	}
	shown := json.RawMessage(r.attempt.output.redact.text(string(result)))
	if !json.Valid(shown) {
		return nil, errors.New("the result has a secret outside of a text")
	}
	return shown, nil
}

// shortText returns a text on one line, without secrets of the configuration.
func shortText(a *attempt, text string) string {
	text = strings.Join(strings.Fields(safeText([]byte(a.output.redact.text(text)))), " ")
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}
