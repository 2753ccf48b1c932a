package jobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/progress"
)

const (
	// gatherTime is how long output waits for more, unless it fills a chunk or
	// an attempt has ended.
	gatherTime = 250 * time.Millisecond
	// maxHeld bounds the output that a node holds in memory, of all attempts.
	maxHeld = 32 << 20
	// maxStatement bounds one statement, in bytes of text.
	maxStatement = 4 << 20
	saveTimeout  = 5 * time.Second
	// retryPause is what follows the first failure; it doubles up to maxRetryPause.
	retryPause    = 100 * time.Millisecond
	maxRetryPause = time.Second
)

// logStore is where output is kept.
type logStore interface {
	// LastSeqs returns the number of the last chunk of each run that has any.
	LastSeqs(ctx context.Context, runs []jobstore.RunKey) (map[jobstore.RunKey]int, error)
	// AppendLogs adds numbered chunks. A chunk that is there already is left.
	AppendLogs(ctx context.Context, rows []jobstore.LogRow) error
}

// logWriter stores the output of all attempts of a node: what they write while
// one statement is under way goes into the next. The memory that it holds is
// bounded; a database that is slow or away costs output, not jobs.
type logWriter struct {
	store  logStore
	logger *slog.Logger
	limit  int
	// filled has a note while output waits, urgent while it should not.
	filled, urgent chan struct{}
	abandoned      chan struct{}
	abandonOnce    sync.Once

	mu      sync.Mutex
	waiting []*output // each once, first come first
	held    int       // weight of all that is pending or being stored
	fresh   int       // of what came since the last statement
}

func newLogWriter(store logStore, logger *slog.Logger) *logWriter {
	return &logWriter{
		store: store, logger: logger, limit: maxHeld,
		filled: make(chan struct{}, 1), urgent: make(chan struct{}, 1), abandoned: make(chan struct{}),
	}
}

// reserve makes room for output of an attempt. One may hold as much as it leaves
// free: whoever comes next still finds room.
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
	note(w.filled)
	if w.fresh >= chunkBytes {
		note(w.urgent)
	}
	return true
}

func (w *logWriter) release(weight int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held -= weight
}

// urge has everything stored that waits, now.
func (w *logWriter) urge() { note(w.urgent) }

// abandon keeps no attempt waiting any more: the cluster has given this node up.
func (w *logWriter) abandon() { w.abandonOnce.Do(func() { close(w.abandoned) }) }

// note leaves a note in a channel of one place; a second one adds nothing.
func note(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run stores output until ctx ends, which is after all attempts have.
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

// take collects what waits. What comes from now on leaves notes of its own.
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

// save tries until all is stored, nobody waits for the rest any more, or ctx ends.
func (w *logWriter) save(ctx context.Context, loads []*load) {
	for pause := retryPause; ; pause = min(2*pause, maxRetryPause) {
		err := w.try(ctx, loads)
		if err == nil {
			settle(loads, true)
			return
		}
		if refused(err) && len(loads) > 1 { // one attempt's text is not to cost the others theirs
			for _, l := range loads {
				w.save(ctx, []*load{l})
			}
			return
		}
		w.logger.WarnContext(ctx, "output of jobs cannot be stored yet", "attempts", len(loads), "error", err)
		if refused(err) || !progress.Sleep(ctx, pause) {
			settle(loads, false)
			return
		}
		if loads = ridOfGone(loads); len(loads) == 0 {
			return
		}
	}
}

func settle(loads []*load, stored bool) {
	for _, l := range loads {
		l.output.settle(l, stored)
	}
}

func ridOfGone(loads []*load) []*load {
	return slices.DeleteFunc(loads, func(l *load) bool {
		gone := l.output.isGone()
		if gone {
			l.output.settle(l, false)
		}
		return gone
	})
}

// refused tells text that PostgreSQL does not take, in a database that is not in
// UTF-8 for one, from a failure that passes.
func refused(err error) bool {
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

// number gives each chunk its place for good, so that a statement whose answer
// was lost can be repeated. An attempt that a drain cut or that was snoozed runs
// again under the same number, and goes on where its first run's output ended.
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

// logTable is the table of the cluster.
type logTable struct{ pool *pgxpool.Pool }

func (t logTable) LastSeqs(ctx context.Context, runs []jobstore.RunKey) (map[jobstore.RunKey]int, error) {
	return jobstore.LastSeqs(ctx, t.pool, runs)
}

func (t logTable) AppendLogs(ctx context.Context, rows []jobstore.LogRow) error {
	return jobstore.AppendLogs(ctx, t.pool, rows)
}
