package forge

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

const waitTimeout = time.Minute

// watchFile runs a fileWatcher for a file with the content "one".
func watchFile(t *testing.T, path string) *fileWatcher {
	t.Helper()
	w := newFileWatcher(path, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	return w
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func renameFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// A node reads its file while the watcher starts: an edit right after that is reported.
func TestEditBeforeTheWatchIsReported(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	writeFile(t, path, "one")
	synctest.Test(t, func(t *testing.T) {
		w := newFileWatcher(path, slog.New(slog.DiscardHandler))
		writeFile(t, path, "three")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.follow(ctx, nil, nil, nil)
		select {
		case <-w.Changed():
		case <-time.After(waitTimeout):
			t.Error("the edit is lost")
		}
	})
}

// awaitChange repeats an edit until it is reported: the watcher may not have
// started.
func awaitFileChange(t *testing.T, w *fileWatcher, what string, edit func(n int)) {
	t.Helper()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	deadline := time.After(waitTimeout)
	edit(0)
	for n := 1; ; n++ {
		select {
		case <-w.Changed():
			return
		case <-again.C:
			edit(n)
		case <-deadline:
			t.Fatalf("not reported: %s", what)
		}
	}
}

func fileText(n int) string { return string(make([]byte, n+10)) }

func TestEditsAreReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "forge.toml")
	writeFile(t, path, "one")
	w := watchFile(t, path)
	awaitFileChange(t, w, "a write", func(n int) { writeFile(t, path, fileText(n)) })
	awaitFileChange(t, w, "a rename over it", func(n int) {
		writeFile(t, path+".new", fileText(n))
		renameFile(t, path+".new", path)
	})
	awaitFileChange(t, w, "its removal", func(int) { _ = os.Remove(path) })
	awaitFileChange(t, w, "its return", func(n int) { writeFile(t, path, fileText(n)) })
}

// A deployment that replaces a link to a directory changes no file of that name.
func TestReplacedDirectoryLinkIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, version := range []string{"v0", "v1"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, version, "forge.toml"), version)
	}
	link := func(version string) {
		if err := os.Symlink(version, filepath.Join(dir, "next")); err != nil {
			t.Fatal(err)
		}
		renameFile(t, filepath.Join(dir, "next"), filepath.Join(dir, "data"))
	}
	link("v0")
	path := filepath.Join(dir, "forge.toml")
	if err := os.Symlink(filepath.Join("data", "forge.toml"), path); err != nil {
		t.Fatal(err)
	}
	w := watchFile(t, path)
	versions := [...]string{"v1", "v0"}
	awaitFileChange(t, w, "another version behind the link", func(n int) { link(versions[n%2]) })
}

// A file that is being written is reported once, when it is stable. Changes of
// other files and rewrites with the same content are not reported.
func TestFileIsReportedOnceStable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	writeFile(t, path, "one")
	synctest.Test(t, func(t *testing.T) {
		w := newFileWatcher(path, slog.New(slog.DiscardHandler))
		events := make(chan fsnotify.Event)
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { w.follow(ctx, events, nil, nil) })
		defer wait.Wait()
		defer cancel()
		told := func() bool {
			synctest.Wait()
			select {
			case <-w.Changed():
				return true
			default:
				return false
			}
		}
		for n := range 5 {
			writeFile(t, path, fileText(n))
			events <- fsnotify.Event{}
			time.Sleep(settleTime - time.Millisecond)
			if told() {
				t.Fatal("told of half a file")
			}
		}
		time.Sleep(2 * settleTime)
		if !told() {
			t.Fatal("not told of a file at rest")
		}
		events <- fsnotify.Event{}
		time.Sleep(3 * settleTime)
		if told() {
			t.Error("told of a file that is as it was")
		}
	})
}

// AtRest never reads a partial file, even if the file is written during the read.
func TestAtRestReadsNoPartialFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	writeFile(t, path, "")
	w := newFileWatcher(path, slog.New(slog.DiscardHandler))
	var found []string
	w.AtRest(t.Context(), func() {
		if len(found) == 0 {
			writeFile(t, path, "whole")
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, string(text))
	})
	if age := w.sources.state().age(); len(found) != 2 || found[1] != "whole" || age < settleTime {
		t.Errorf("read %q, the last %s after it was written", found, age)
	}
	gone := 0
	newFileWatcher(path+".gone", w.logger).AtRest(t.Context(), func() { gone++ })
	if gone != 1 {
		t.Errorf("a file that is not there was read %d times", gone)
	}
}

// Without events, the periodic checks detect edits.
func TestPollingDetectsEdits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	synctest.Test(t, func(t *testing.T) {
		w := newFileWatcher(path, slog.New(slog.DiscardHandler))
		poll := time.NewTicker(watchAloneInterval)
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { w.follow(ctx, nil, nil, poll.C) })
		synctest.Wait()
		writeFile(t, path, "one")
		time.Sleep(watchAloneInterval + 2*settleTime)
		synctest.Wait()
		if len(w.changed) != 1 {
			t.Error("not told of a new file")
		}
		cancel()
		wait.Wait()
	})
}

// Edits of included files are reported: also of files in directories that are created later.
func TestEditsOfIncludedFilesAreReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "forge.toml")
	writeFile(t, path, `include = ["crons.d/*.toml", "teams/*/*.toml"]`)
	w := watchFile(t, path)
	makeDir := func(name string) string {
		created := filepath.Join(dir, name)
		if err := os.MkdirAll(created, 0o700); err != nil {
			t.Fatal(err)
		}
		return created
	}
	one := filepath.Join(makeDir("crons.d"), "one.toml")
	awaitFileChange(t, w, "a new file", func(n int) { writeFile(t, one, fileText(n)) })
	awaitFileChange(t, w, "a write", func(n int) { writeFile(t, one, fileText(n+100)) })
	awaitFileChange(t, w, "a rename over it", func(n int) {
		writeFile(t, filepath.Join(dir, "new"), fileText(n))
		renameFile(t, filepath.Join(dir, "new"), one)
	})
	awaitFileChange(t, w, "a file of a new team", func(n int) { writeFile(t, filepath.Join(makeDir("teams/a"), "a.toml"), fileText(n)) })
	awaitFileChange(t, w, "its removal", func(int) { _ = os.Remove(one) })
	awaitFileChange(t, w, "another pattern", func(n int) {
		makeDir("other")
		writeFile(t, path, `include = ["other/*.toml"] # `+strings.Repeat("x", n))
	})
	awaitFileChange(t, w, "a file of the new pattern", func(n int) { writeFile(t, filepath.Join(dir, "other", "b.toml"), fileText(n)) })
}

// While forge.toml is invalid, edits of the files that it included are still reported.
func TestInvalidFileKeepsItsIncludes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "forge.toml")
	writeFile(t, path, `include = ["*.cron"]`)
	writeFile(t, filepath.Join(dir, "a.cron"), "one")
	s := newSources(path)
	s.state()
	writeFile(t, path, `include = [`)
	before := s.state()
	writeFile(t, filepath.Join(dir, "a.cron"), "another")
	if s.state() == before {
		t.Error("an edit of an included file is not seen")
	}
}

// A file or directory that is refused because of its mode is read again once that is fixed.
func TestModesAreWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "forge.toml")
	writeFile(t, path, `include = ["crons.d/*.toml"]`)
	crons := filepath.Join(dir, "crons.d")
	if err := os.Mkdir(crons, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(crons, "a.toml")
	writeFile(t, file, "# none")
	s := newSources(path)
	for _, name := range []string{path, crons, file} {
		before := s.state()
		if err := os.Chmod(name, 0o750); err != nil {
			t.Fatal(err)
		}
		if s.state() == before {
			t.Errorf("another mode of %s is not seen", name)
		}
	}
}
