// Package filewatch reports edits of a file. It watches the file's directory,
// because editors and deployments replace a file rather than write to it, and waits
// until the file is stable, so that a partial file is not read. An idle watcher
// only reads the file's metadata every few seconds, for file systems that do not
// report changes.
package filewatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// settleTime is how long a file must be unchanged to be stable.
	settleTime = 200 * time.Millisecond
	// pollInterval is how often the file is checked without an event, and pollAlone
	// the same if the system cannot watch it.
	pollInterval = 10 * time.Second
	pollAlone    = 2 * time.Second
)

// Watcher watches one file.
type Watcher struct {
	path    string
	logger  *slog.Logger
	changed chan struct{}
}

// New returns a Watcher for the file at path, which need not exist.
func New(path string, logger *slog.Logger) *Watcher {
	return &Watcher{path: path, logger: logger, changed: make(chan struct{}, 1)}
}

// Changed returns a channel that receives after one or more edits: the file was
// changed, replaced, removed or created.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Run watches until ctx ends, and returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	var (
		events   <-chan fsnotify.Event
		errs     <-chan error // such as an overflow of the event queue
		interval = pollAlone
	)
	watch, err := w.open()
	if err != nil {
		w.logger.WarnContext(ctx, "the configuration file cannot be watched and is checked every few seconds", "path", w.path, "error", err)
	} else {
		defer func() { _ = watch.Close() }() // its error is irrelevant to the file
		events, errs, interval = watch.Events, watch.Errors, pollInterval
	}
	poll := time.NewTicker(interval)
	defer poll.Stop()
	w.follow(ctx, events, errs, poll.C)
	return nil
}

// open watches the directory of the file and, if the file is a link, also the
// directory of its target.
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
		_ = watch.Add(filepath.Dir(target)) // on failure, the periodic checks detect changes
	}
	return watch, nil
}

// follow checks the file after each event until the file is stable.
func (w *Watcher) follow(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, poll <-chan time.Time) {
	known := stat(w.path)
	resting := known
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		case err := <-errs:
			w.logger.DebugContext(ctx, "watching the configuration file", "path", w.path, "error", err)
		case <-poll:
		case <-settled:
			settled = nil
			now := stat(w.path)
			switch {
			case !now.same(resting): // still being written
				resting, settled = now, time.After(settleTime)
			case !now.same(known):
				known = now
				w.notify()
			}
			continue
		}
		if settled == nil && !stat(w.path).same(known) {
			resting, settled = stat(w.path), time.After(settleTime)
		}
	}
}

// AtRest calls read when the file is stable, and again if it changed while it was
// read. The result of the last call is from a complete file.
func (w *Watcher) AtRest(ctx context.Context, read func()) {
	for ctx.Err() == nil {
		before := stat(w.path)
		if age := before.age(); 0 <= age && age < settleTime {
			watchdog.Sleep(ctx, settleTime-age)
			continue
		}
		read()
		if stat(w.path).same(before) {
			return
		}
	}
}

func (w *Watcher) notify() {
	select {
	case w.changed <- struct{}{}:
	default: // an earlier change is still pending
	}
}

// state is the metadata of a file.
type state struct{ info os.FileInfo } // nil: no file is visible

func stat(path string) state {
	info, err := os.Stat(path)
	if err != nil {
		return state{}
	}
	return state{info}
}

// age returns the time since the file was written, and settleTime if there is no
// file.
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
