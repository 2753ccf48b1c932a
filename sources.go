package forge

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
)

// sources are a configuration file and the files that it includes. It reads their metadata,
// and of the contents only the patterns in the configuration file, when that has changed.
type sources struct {
	path string

	mu       sync.Mutex
	patterns []string
	// patternsOf is the state of the file in which the patterns stand.
	patternsOf sourcesState
	cost       time.Duration // of the last state
}

func newSources(path string) *sources { return &sources{path: path} }

// sourcesState identifies the metadata of the files. Two states are equal if no file was
// changed, replaced, added or removed in between.
type sourcesState struct {
	files  [sha256.Size]byte
	newest int64 // when the newest file was written, in Unix nanoseconds; 0: there is no file
}

// state reads the metadata of all files.
func (s *sources) state() sourcesState {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	digest, newest := sha256.New(), int64(0)
	newest = addFile(digest, s.path, newest)
	patterns := s.refresh()
	for _, file := range config.IncludedFiles(s.path, patterns) {
		newest = addFile(digest, file, newest)
	}
	for _, dir := range config.IncludedDirs(s.path, patterns) {
		addMode(digest, dir) // what is in it counts by itself
	}
	s.cost = time.Since(began)
	return sourcesState{files: [sha256.Size]byte(digest.Sum(nil)), newest: newest}
}

// dirs returns the directories in which included files may appear.
func (s *sources) dirs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return config.IncludedDirs(s.path, s.refresh())
}

// refresh reads the patterns again if the configuration file has changed. A file that is
// invalid for the moment keeps its patterns.
func (s *sources) refresh() []string {
	digest := sha256.New()
	newest := addFile(digest, s.path, 0)
	now := sourcesState{files: [sha256.Size]byte(digest.Sum(nil)), newest: newest}
	if now == s.patternsOf {
		return s.patterns
	}
	if patterns, ok := config.IncludePatterns(s.path); ok {
		s.patterns = patterns
	}
	s.patternsOf = now
	return s.patterns
}

// pause returns how long files must be unchanged to be stable. The more files there are, the
// longer it is, so that checks take a bounded share of the time.
func (s *sources) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(settleTime, watchShare*s.cost)
}

// addFile adds the metadata of a file to a digest. It returns the later of newest and the
// time at which the file was written.
func addFile(digest hash.Hash, path string, newest int64) int64 {
	info, err := os.Stat(path)
	if err != nil {
		fmt.Fprintf(digest, "%q\n", path)
		return newest
	}
	device, inode := identity(info)
	written := info.ModTime().UnixNano()
	fmt.Fprintf(digest, "%q %d %d %d %d %o\n", path, device, inode, info.Size(), written, info.Mode())
	return max(newest, written)
}

// addMode adds to a digest who may read and write a directory.
func addMode(digest hash.Hash, dir string) {
	if info, err := os.Stat(dir); err == nil {
		fmt.Fprintf(digest, "%q %o\n", dir, info.Mode())
	}
}

// age returns the time since a file was last written, and settleTime if there is none.
func (s sourcesState) age() time.Duration {
	if s.newest == 0 {
		return settleTime
	}
	return time.Since(time.Unix(0, s.newest))
}
