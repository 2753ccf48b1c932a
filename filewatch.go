package forge

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
	// watchInterval is how often the file is checked without an event, and watchAloneInterval
	// the same if the system cannot watch it.
	watchInterval      = 10 * time.Second
	watchAloneInterval = 2 * time.Second
)

// fileWatcher reports edits of a file. It watches the file's directory,
// because editors and deployments replace a file rather than write to it, and waits
// until the file is stable, so that a partial file is not read. An idle watcher
// only reads the file's metadata every few seconds, for file systems that do not
// report changes.
type fileWatcher struct {
	path    string
	logger  *slog.Logger
	changed chan struct{}
}

// newFileWatcher returns a fileWatcher for the file at path, which need not exist.
func newFileWatcher(path string, logger *slog.Logger) *fileWatcher {
	return &fileWatcher{path: path, logger: logger, changed: make(chan struct{}, 1)}
}

// Changed returns a channel that receives after one or more edits: the file was
// changed, replaced, removed or created.
func (w *fileWatcher) Changed() <-chan struct{} { return w.changed }

// Run watches until ctx ends, and returns nil.
func (w *fileWatcher) Run(ctx context.Context) error {
	var (
		events   <-chan fsnotify.Event
		errs     <-chan error // such as an overflow of the event queue
		interval = watchAloneInterval
	)
	watch, err := w.open()
	if err != nil {
		w.logger.WarnContext(ctx, "the configuration file cannot be watched and is checked every few seconds", "path", w.path, "error", err)
	} else {
		defer func() { _ = watch.Close() }() // its error is irrelevant to the file
		events, errs, interval = watch.Events, watch.Errors, watchInterval
	}
	poll := time.NewTicker(interval)
	defer poll.Stop()
	w.follow(ctx, events, errs, poll.C)
	return nil
}

// open watches the directory of the file and, if the file is a link, also the
// directory of its target.
func (w *fileWatcher) open() (*fsnotify.Watcher, error) {
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
func (w *fileWatcher) follow(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, poll <-chan time.Time) {
	known := statFile(w.path)
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
			now := statFile(w.path)
			switch {
			case !now.same(resting): // still being written
				resting, settled = now, time.After(settleTime)
			case !now.same(known):
				known = now
				w.notify()
			}
			continue
		}
		if settled == nil && !statFile(w.path).same(known) {
			resting, settled = statFile(w.path), time.After(settleTime)
		}
	}
}

// AtRest calls read when the file is stable, and again if it changed while it was
// read. The result of the last call is from a complete file.
func (w *fileWatcher) AtRest(ctx context.Context, read func()) {
	for ctx.Err() == nil {
		before := statFile(w.path)
		if age := before.age(); 0 <= age && age < settleTime {
			watchdog.Sleep(ctx, settleTime-age)
			continue
		}
		read()
		if statFile(w.path).same(before) {
			return
		}
	}
}

func (w *fileWatcher) notify() {
	select {
	case w.changed <- struct{}{}:
	default: // an earlier change is still pending
	}
}

// fileState is the metadata of a file.
type fileState struct{ info os.FileInfo } // nil: no file is visible

func statFile(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return fileState{info}
}

// age returns the time since the file was written, and settleTime if there is no
// file.
func (s fileState) age() time.Duration {
	if s.info == nil {
		return settleTime
	}
	return time.Since(s.info.ModTime())
}

func (s fileState) same(other fileState) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil
	}
	return os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() && s.info.ModTime().Equal(other.info.ModTime())
}
