package forge

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// settleTime is how long files must be unchanged to be stable.
	settleTime = 200 * time.Millisecond
	// watchInterval is how often the files are checked without an event, and watchAloneInterval
	// the same if the system cannot watch them.
	watchInterval      = 10 * time.Second
	watchAloneInterval = 2 * time.Second
	// watchShare is the share of the time that checks of many files may take: one in so many.
	watchShare = 20
	// maxWatched is how many directories are watched. Periodic checks find changes in the others.
	maxWatched = 1000
)

// fileWatcher reports edits of a configuration file and of the files that it includes. It
// watches directories, because editors and deployments replace a file rather than write to
// it, and waits until all files are stable, so that a partial file is not read. An idle
// watcher only reads the metadata of the files every few seconds, for file systems that do
// not report changes. The more files there are, the less often it reads their metadata.
type fileWatcher struct {
	path    string
	logger  *slog.Logger
	changed chan struct{}
	sources *sources
	known   sourcesState      // when it was made, then of the last report
	watch   *fsnotify.Watcher // nil if the system cannot watch
}

// newFileWatcher returns a fileWatcher for the file at path, which need not exist. Run also
// reports edits that were made before it began.
func newFileWatcher(path string, logger *slog.Logger) *fileWatcher {
	sources := newSources(path)
	return &fileWatcher{path: path, logger: logger, changed: make(chan struct{}, 1), sources: sources, known: sources.state()}
}

// Changed returns a channel that receives after one or more edits: a file was changed,
// replaced, removed or created.
func (w *fileWatcher) Changed() <-chan struct{} { return w.changed }

// Run watches until ctx ends, and returns nil.
func (w *fileWatcher) Run(ctx context.Context) error {
	var (
		events   <-chan fsnotify.Event
		errs     <-chan error // such as an overflow of the event queue
		interval = watchAloneInterval
		err      error
	)
	if w.watch, err = w.open(); err != nil {
		w.logger.WarnContext(ctx, "the configuration file cannot be watched and is checked every few seconds", "path", w.path, "error", err)
	} else {
		defer func() { _ = w.watch.Close() }() // its error is irrelevant to the file
		events, errs, interval = w.watch.Events, w.watch.Errors, watchInterval
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

// check returns the state of the files, and watches the directories in which included files
// may appear.
func (w *fileWatcher) check() sourcesState {
	if w.watch != nil {
		dirs := w.sources.dirs()
		for _, dir := range dirs[:min(len(dirs), maxWatched)] {
			_ = w.watch.Add(dir) // on failure, the periodic checks detect changes
		}
	}
	return w.sources.state()
}

// follow checks the files after each event until they are stable.
func (w *fileWatcher) follow(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, poll <-chan time.Time) {
	var settled <-chan time.Time
	resting := w.check()
	if resting != w.known {
		settled = time.After(w.sources.pause())
	}
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
			now := w.check()
			switch {
			case now != resting: // still being written
				resting, settled = now, time.After(w.sources.pause())
			case now != w.known:
				w.known = now
				w.notify()
			}
			continue
		}
		switch {
		case settled != nil:
		case w.sources.pause() > settleTime: // many files: one check for all events
			resting, settled = w.known, time.After(w.sources.pause())
		default:
			if resting = w.check(); resting != w.known {
				settled = time.After(w.sources.pause())
			}
		}
	}
}

// AtRest calls read when the files are stable, and again if they changed while they were
// read. The result of the last call is from complete files.
func (w *fileWatcher) AtRest(ctx context.Context, read func()) {
	for ctx.Err() == nil {
		before := w.sources.state()
		if age := before.age(); 0 <= age && age < settleTime {
			watchdog.Sleep(ctx, settleTime-age)
			continue
		}
		read()
		if w.sources.state() == before {
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
