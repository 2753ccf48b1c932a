package jobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// gatherTime is how long output waits for more output, unless it fills a chunk or an
	// attempt has ended.
	gatherTime = 250 * time.Millisecond
	// maxHeld is the maximum size of the output that a node keeps in memory, for all
	// attempts.
	maxHeld = 32 << 20
	// maxStatement is the maximum size of one statement, in bytes of text.
	maxStatement = 4 << 20
	saveTimeout  = 5 * time.Second
	// retryPause is the pause after the first failure. It doubles up to maxRetryPause.
	retryPause    = 100 * time.Millisecond
	maxRetryPause = time.Second
)

// logStore stores output.
type logStore interface {
	// LastSeqs returns the number of the last chunk of each run that has any.
	LastSeqs(ctx context.Context, runs []jobstore.RunKey) (map[jobstore.RunKey]int, error)
	// AppendLogs adds numbered chunks. It ignores chunks that exist already.
	AppendLogs(ctx context.Context, rows []jobstore.LogRow) error
}

// logWriter stores the output of all attempts of a node. The output that arrives during
// one statement is part of the next. Its memory is bounded: a slow or unavailable
// database loses output, but does not delay jobs.
type logWriter struct {
	store  logStore
	logger *slog.Logger
	limit  int
	// filled is signalled when output is waiting, urgent when it should be stored at
	// once.
	filled, urgent chan struct{}
	abandoned      chan struct{}
	abandonOnce    sync.Once

	mu      sync.Mutex
	waiting []*output // each once, in order of arrival
	held    int       // size of all output that is pending or being stored
	fresh   int       // size of the output since the last statement
}

func newLogWriter(store logStore, logger *slog.Logger) *logWriter {
	return &logWriter{
		store: store, logger: logger, limit: maxHeld,
		filled: make(chan struct{}, 1), urgent: make(chan struct{}, 1), abandoned: make(chan struct{}),
	}
}

// reserve reserves memory for an attempt's output. An attempt may use at most as much
// memory as stays free, so there is always room for another attempt.
func (w *logWriter) reserve(o *output, weight int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.weight+weight > w.limit-w.held {
		return false
	}
	w.held += weight
	w.fresh += weight
	if !o.queued {
		o.queued = true
		w.waiting = append(w.waiting, o)
	}
	signal(w.filled)
	if w.fresh >= chunkBytes {
		signal(w.urgent)
	}
	return true
}

func (w *logWriter) release(weight int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held -= weight
}

// urge stores all waiting output now.
func (w *logWriter) urge() { signal(w.urgent) }

// abandon stops all attempts from waiting for their output, because the cluster has given
// up this node.
func (w *logWriter) abandon() { w.abandonOnce.Do(func() { close(w.abandoned) }) }

// signal sends to a channel with a buffer of one. It does nothing if a value is pending.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run stores output until ctx ends, which is after the end of all attempts.
func (w *logWriter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.filled:
		}
		gather := time.NewTimer(gatherTime)
		select {
		case <-ctx.Done():
		case <-gather.C:
		case <-w.urgent:
		}
		gather.Stop()
		if loads := w.take(); len(loads) > 0 {
			w.save(ctx, loads)
		}
	}
}

// take collects the waiting output. Later output signals again.
func (w *logWriter) take() []*load {
	w.mu.Lock()
	waiting := w.waiting
	w.waiting, w.fresh = nil, 0
	for _, o := range waiting {
		o.queued = false
	}
	w.mu.Unlock()
	var loads []*load
	for _, o := range waiting {
		if l := o.take(); l != nil {
			loads = append(loads, l)
		}
	}
	return loads
}

// save retries until all output is stored, no attempt waits for the rest, or ctx ends.
func (w *logWriter) save(ctx context.Context, loads []*load) {
	for pause := retryPause; ; pause = min(2*pause, maxRetryPause) {
		err := w.try(ctx, loads)
		if err == nil {
			settle(loads, true)
			return
		}
		if rejected(err) && len(loads) > 1 { // one attempt's text must not affect the output of the others
			for _, l := range loads {
				w.save(ctx, []*load{l})
			}
			return
		}
		w.logger.WarnContext(ctx, "storing the output of jobs failed", "attempts", len(loads), "error", err)
		if rejected(err) || !watchdog.Sleep(ctx, pause) {
			settle(loads, false)
			return
		}
		if loads = dropGivenUp(loads); len(loads) == 0 {
			return
		}
	}
}

func settle(loads []*load, stored bool) {
	for _, l := range loads {
		l.output.settle(l, stored)
	}
}

func dropGivenUp(loads []*load) []*load {
	return slices.DeleteFunc(loads, func(l *load) bool {
		givenUp := l.output.isGivenUp()
		if givenUp {
			l.output.settle(l, false)
		}
		return givenUp
	})
}

// rejected reports whether PostgreSQL rejects the text, for example because the database
// is not in UTF-8. Other failures are temporary.
func rejected(err error) bool {
	const dataException = "22"
	postgres, ok := errors.AsType[*pgconn.PgError](err)
	return ok && len(postgres.Code) == 5 && postgres.Code[:2] == dataException
}

func (w *logWriter) try(ctx context.Context, loads []*load) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if err := w.number(ctx, loads); err != nil {
		return err
	}
	var rows []jobstore.LogRow
	size := 0
	for _, l := range loads {
		for _, row := range l.rows {
			if size > 0 && size+len(row.Chunk) > maxStatement {
				if err := w.store.AppendLogs(ctx, rows); err != nil {
					return err
				}
				rows, size = nil, 0
			}
			rows, size = append(rows, row), size+len(row.Chunk)
		}
	}
	return w.store.AppendLogs(ctx, rows)
}

// number assigns the chunks their numbers, so that a statement whose answer was lost can
// be repeated. An attempt that was interrupted by a drain or snoozed runs again with the
// same attempt number. Its chunks continue the numbers of the first run.
func (w *logWriter) number(ctx context.Context, loads []*load) error {
	var unknown []jobstore.RunKey
	for _, l := range loads {
		if o := l.output; !o.numbered {
			unknown = append(unknown, jobstore.RunKey{JobID: o.jobID, Attempt: o.attempt})
		}
	}
	var last map[jobstore.RunKey]int
	if len(unknown) > 0 {
		var err error
		if last, err = w.store.LastSeqs(ctx, unknown); err != nil {
			return err
		}
	}
	for _, l := range loads {
		l.number(last)
	}
	return nil
}

func (l *load) number(last map[jobstore.RunKey]int) {
	o := l.output
	if !o.numbered {
		o.seq, o.numbered = last[jobstore.RunKey{JobID: o.jobID, Attempt: o.attempt}], true
	}
	for _, piece := range l.pieces {
		o.seq++
		row := jobstore.LogRow{JobID: o.jobID, LogChunk: jobstore.LogChunk{
			Attempt: o.attempt, Seq: o.seq, At: piece.at, Stream: piece.stream, Chunk: string(piece.text),
		}}
		if o.retention > 0 {
			row.KeepUntil = piece.at.Add(o.retention)
		}
		l.rows = append(l.rows, row)
	}
	l.pieces = nil
}
