// Package filewatch tells when a file was edited. It watches the file's
// directory, for editors and deployments replace a file rather than write into
// it, and waits until the file has come to rest, so that half a file is not
// taken for a whole one. An idle watch costs nothing but a look at the file's
// metadata every few seconds, for file systems that tell of no changes.
package filewatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/forge-scheduler/forge/internal/progress"
)

const (
	// settleTime is how long a file must have stayed the same.
	settleTime = 200 * time.Millisecond
	// pollInterval is how often the file is looked at unasked, and pollAlone the
	// same where the system cannot watch.
	pollInterval = 10 * time.Second
	pollAlone    = 2 * time.Second
)

// Watcher watches one file.
type Watcher struct {
	path    string
	logger  *slog.Logger
	changed chan struct{}
}

// New returns a Watcher of the file at path, which need not exist.
func New(path string, logger *slog.Logger) *Watcher {
	return &Watcher{path: path, logger: logger, changed: make(chan struct{}, 1)}
}

// Changed receives after one edit or many: the file was changed, replaced,
// removed or made.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Run watches until ctx ends, and returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	var (
		events   <-chan fsnotify.Event
		troubles <-chan error // such as more events than the system keeps
		interval = pollAlone
	)
	watch, err := w.open()
	if err != nil {
		w.logger.WarnContext(ctx, "the configuration file cannot be watched and is looked at every few seconds", "path", w.path, "error", err)
	} else {
		defer func() { _ = watch.Close() }() // says nothing of the file
		events, troubles, interval = watch.Events, watch.Errors, pollInterval
	}
	poll := time.NewTicker(interval)
	defer poll.Stop()
	w.follow(ctx, events, troubles, poll.C)
	return nil
}

// open watches the directory of the file and, where the file is a link, that of
// its target too.
func (w *Watcher) open() (*fsnotify.Watcher, error) {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watch.Add(filepath.Dir(w.path)); err != nil {
		_ = watch.Close()
		return nil, err
	}
	if target, err := filepath.EvalSymlinks(w.path); err == nil && target != w.path {
		_ = watch.Add(filepath.Dir(target)) // the looks at the file make up for it
	}
	return watch, nil
}

// follow looks at the file after each event, until it is at rest.
func (w *Watcher) follow(ctx context.Context, events <-chan fsnotify.Event, troubles <-chan error, poll <-chan time.Time) {
	known := look(w.path)
	resting := known
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		case err := <-troubles:
			w.logger.DebugContext(ctx, "watching the configuration file", "path", w.path, "error", err)
		case <-poll:
		case <-settled:
			settled = nil
			now := look(w.path)
			switch {
			case !now.same(resting): // it is being written
				resting, settled = now, time.After(settleTime)
			case !now.same(known):
				known = now
				w.tell()
			}
			continue
		}
		if settled == nil && !look(w.path).same(known) {
			resting, settled = look(w.path), time.After(settleTime)
		}
	}
}

// AtRest calls read when the file has come to rest, and again if it changed while
// it was read: what read found last is a whole file.
func (w *Watcher) AtRest(ctx context.Context, read func()) {
	for ctx.Err() == nil {
		before := look(w.path)
		if age := before.age(); 0 <= age && age < settleTime {
			progress.Sleep(ctx, settleTime-age)
			continue
		}
		read()
		if look(w.path).same(before) {
			return
		}
	}
}

func (w *Watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default: // has not yet looked after the last one
	}
}

// state is what a look at the file shows without reading it.
type state struct{ info os.FileInfo } // nil: there is none to be seen

func look(path string) state {
	info, err := os.Stat(path)
	if err != nil {
		return state{}
	}
	return state{info}
}

// age is how long ago the file was written; that of no file is long.
func (s state) age() time.Duration {
	if s.info == nil {
		return settleTime
	}
	return time.Since(s.info.ModTime())
}

func (s state) same(other state) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil
	}
	return os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() && s.info.ModTime().Equal(other.info.ModTime())
}
