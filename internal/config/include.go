package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"
)

// limits bound what a configuration may include in all. Each file is bounded by maxFileSize
// too.
type limits struct {
	files int
	bytes int64
	// manyCrons are enough for a warning, mostCrons are the most.
	manyCrons, mostCrons int
}

// A million crons fit in either way: some in each of many files, or a hundred full files.
var defaultLimits = limits{files: 100_000, bytes: 1 << 30, manyCrons: 100_000, mostCrons: 1_000_000}

// wildcards are the characters that make a name a pattern.
const wildcards = `*?[\`

// includedSections are the sections that an included file may hold.
var includedSections = []string{"crons", "jobs"}

// include reads the files that the configuration includes and adds their crons and jobs.
// It reports whether all could be decoded.
func (l *loader) include() bool {
	l.crons = len(l.cfg.Crons)
	defer l.joinCrons()
	read, whole := map[string]bool{}, true
	bytes := int64(0)
	for i, pattern := range l.cfg.Include {
		path := element("include", i)
		if !l.ok(path) || !l.checkPattern(path, pattern) {
			whole = false
			continue
		}
		files, err := matchingFiles(l.dir, pattern)
		if err != nil {
			l.wrong(path, err.Error(), strconv.Quote(clip(pattern)), "a directory that can be read")
			whole = false
			continue
		}
		if len(files) == 0 {
			whole = l.nothingIncluded(path, pattern) && whole
		}
		for _, file := range files {
			if read[file] {
				continue
			}
			read[file] = true
			if len(read) > l.limits.files {
				l.wrong(path, "too many included files", "", "at most "+humanize.Comma(int64(l.limits.files)))
				return false
			}
			text, ok := l.includeFile(path, file)
			whole = ok && whole
			if bytes += int64(len(text)); bytes > l.limits.bytes {
				l.wrong(path, "the included files are too large", "", "at most "+humanize.IBytes(uint64(l.limits.bytes))+" in all") //nolint:gosec // positive
				return false
			}
		}
	}
	return whole
}

// joinCrons adds the crons of the included files to the configuration, in one allocation.
func (l *loader) joinCrons() {
	if l.crons == len(l.cfg.Crons) {
		return
	}
	all := append(make([]Cron, 0, l.crons), l.cfg.Crons...)
	for _, file := range l.included {
		all, file.list = append(all, file.list...), nil
	}
	l.cfg.Crons = all
}

// checkPattern checks a pattern by itself.
func (l *loader) checkPattern(path, pattern string) bool {
	const want = `a path under the directory of this file, such as "crons.d/*.toml"`
	got := strconv.Quote(clip(pattern))
	switch _, err := filepath.Match(pattern, ""); {
	case err != nil:
		l.wrong(path, "not a pattern", got, want)
	case strings.Contains(pattern, "**"):
		l.wrong(path, "directories are not searched recursively", got, `one * for each level, such as "teams/*/*.toml"`)
	case pattern == "" || !inside(l.dir, under(l.dir, pattern)):
		l.wrong(path, "a path outside of the directory of this file", got, want)
	default:
		return true
	}
	return false
}

// nothingIncluded reports a pattern without a file. A directory may still be empty, but a
// file that is named must exist.
func (l *loader) nothingIncluded(path, pattern string) bool {
	if strings.ContainsAny(pattern, wildcards) {
		l.warn(path, "no file matches "+strconv.Quote(clip(pattern)), "")
		return true
	}
	l.wrong(path, "no such file", strconv.Quote(clip(pattern)), "")
	return false
}

// under returns where a path leads that may start at dir.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// inside says whether a path is below a directory.
func inside(dir, path string) bool {
	base, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	relative, err := filepath.Rel(base, full)
	return err == nil && filepath.IsLocal(relative) && relative != "."
}

// matchingFiles returns what a pattern matches, in order. As in a shell, * does not match
// names that begin with a dot: editors and deployments keep their own files there. Unlike
// filepath.Glob it returns an error if a directory cannot be read, or does not exist although
// the pattern names it.
func matchingFiles(dir, pattern string) ([]string, error) {
	pattern = filepath.Clean(pattern)
	if filepath.IsAbs(pattern) {
		dir, pattern = "/", strings.TrimPrefix(pattern, "/")
	}
	found, wild := []string{dir}, false
	for part := range strings.SplitSeq(pattern, "/") {
		var below []string
		isPattern := strings.ContainsAny(part, wildcards)
		for _, up := range found {
			if !isPattern {
				below = append(below, filepath.Join(up, part))
				continue
			}
			names, err := matchingNames(up, part)
			if wild && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
				continue // only some of what matched is, or has, such a directory
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", up, withoutPath(err))
			}
			below = append(below, names...)
		}
		found, wild = below, wild || isPattern
	}
	return slices.DeleteFunc(found, func(file string) bool {
		_, err := os.Lstat(file)
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
	}), nil
}

// matchingNames returns what matches in one directory.
func matchingNames(dir, pattern string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		name := entry.Name()
		if matches, _ := filepath.Match(pattern, name); matches && (name[0] != '.' || pattern[0] == '.') {
			found = append(found, filepath.Join(dir, name))
		}
	}
	return found, nil
}

// includeFile reads one file. Its crons and jobs become those of the configuration.
func (l *loader) includeFile(path, file string) (string, bool) {
	text, mode, err := l.readIncluded(file)
	if err != nil {
		l.wrong(path, file+": "+err.Error(), "", "")
		return "", false
	}
	part := l.part(file)
	if len(text) > maxFileSize {
		part.at(0, Problem{Message: "file too large", Want: "at most 1 MiB; use several files"})
		l.report.Problems = append(l.report.Problems, part.report.Problems...)
		return "", false
	}
	if len(text) == 0 { // a failed write is more likely than the intention to remove its crons
		part.at(0, Problem{Message: "the file is empty", Want: "crons, jobs or a comment"})
	}
	tree, ok := part.decode(strings.TrimPrefix(string(text), "\ufeff"))
	if ok {
		part.refuseSections(tree)
		part.tree(tree)
		part.permissions(mode)
		l.directoryPermissions(part, file)
	}
	l.merge(part, tree)
	return part.ix.text, ok
}

// directoryPermissions refuses commands from a directory where anyone may replace files.
// It checks each directory once.
func (l *loader) directoryPermissions(part *loader, file string) {
	target, err := filepath.EvalSymlinks(file)
	if err != nil || !part.definesCommands() {
		return
	}
	dir := filepath.Dir(target)
	if l.directories[dir] {
		return
	}
	l.directories[dir] = true
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&fs.ModeSticky != 0 {
		return
	}
	l.refuseWritable(dir, info.Mode(), "this directory, and its files define shell jobs")
}

// readIncluded reads an included file. A link may lead to another file under the directory
// of forge.toml, as those do that Kubernetes mounts.
func (l *loader) readIncluded(file string) ([]byte, fs.FileMode, error) {
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, 0, withoutPath(err)
	}
	if l.root == "" {
		if l.root, err = filepath.EvalSymlinks(under(".", l.dir)); err != nil {
			return nil, 0, withoutPath(err)
		}
	}
	switch {
	case !inside(l.root, target):
		return nil, 0, fmt.Errorf("a link that leads out of the directory of %s", filepath.Base(l.name))
	case sameFile(target, l.path):
		return nil, 0, errors.New("the configuration includes itself")
	}
	text, mode, err := readRegular(target, maxFileSize)
	if errors.Is(err, syscall.EISDIR) {
		err = errors.New("a directory, and directories are not searched recursively")
	}
	return text, mode, err
}

func sameFile(one, other string) bool {
	a, err := os.Stat(one)
	if err != nil {
		return false
	}
	b, err := os.Stat(other)
	return err == nil && os.SameFile(a, b)
}

// IncludePatterns returns what the file at path includes; ok is false if the file cannot be
// read or is invalid.
func IncludePatterns(path string) (patterns []string, ok bool) {
	text, _, err := readFile(path)
	if err != nil || len(text) > maxFileSize {
		return nil, false
	}
	l := newLoader(path, LoadOptions{Environ: func() []string { return nil }})
	tree, ok := l.decode(strings.TrimPrefix(string(text), "\ufeff"))
	if !ok {
		return nil, false
	}
	if include, given := tree["include"]; given {
		l.tree(map[string]any{"include": include})
	}
	return l.cfg.Include, true
}

// IncludedFiles returns the files that match the patterns of the file at path.
func IncludedFiles(path string, patterns []string) []string {
	var files []string
	for _, pattern := range patterns {
		if matching, err := matchingFiles(filepath.Dir(path), pattern); err == nil {
			files = append(files, matching...)
		}
	}
	return files
}

// IncludedDirs returns the directories in which files can appear that match the patterns of
// the file at path.
func IncludedDirs(path string, patterns []string) []string {
	var dirs []string
	root := filepath.Dir(path)
	for _, pattern := range patterns {
		for up := filepath.Dir(under(root, pattern)); inside(root, up); up = filepath.Dir(up) {
			relative, err := filepath.Rel(root, up)
			if err != nil {
				continue
			}
			if matching, err := matchingFiles(root, relative); err == nil {
				dirs = append(dirs, matching...)
			}
		}
	}
	return dirs
}

// part returns a loader of an included file, whose problems have paths in that file.
func (l *loader) part(file string) *loader {
	return &loader{
		name: file, dir: l.dir, env: l.env, now: l.now, cfg: &Config{}, ix: newIndex(""), isPart: true,
		given: map[string]string{}, broken: map[string]bool{}, aliases: map[string]string{}, schemas: l.schemas,
	}
}

// refuseSections reports and removes the sections that only forge.toml may hold.
func (l *loader) refuseSections(tree map[string]any) {
	known := fieldNames(configType)
	for name := range tree {
		if slices.Contains(known, name) && !slices.Contains(includedSections, name) {
			l.wrongKey(name, "an included file holds only crons and jobs", "this in forge.toml")
			delete(tree, name)
		}
	}
}

// merge adds what an included file defines.
func (l *loader) merge(part *loader, tree map[string]any) {
	file := newSource(part, tree, l.crons)
	l.report.Problems = append(l.report.Problems, part.report.Problems...)
	l.crons += file.crons
	l.included = append(l.included, file)
	for path := range part.broken {
		l.broken[file.global(path)] = true
	}
	for path, known := range part.cfg.secrets.references {
		l.cfg.secrets.remember(file.global(path), known)
	}
	l.cfg.secrets.values = append(l.cfg.secrets.values, part.cfg.secrets.values...)
	l.mergeJobs(part, file)
}

func (l *loader) mergeJobs(part *loader, file *source) {
	if l.cfg.Jobs == nil {
		l.cfg.Jobs = map[string]Job{}
	}
	for name, job := range part.cfg.Jobs {
		path := join("jobs", name)
		if _, taken := l.cfg.Jobs[name]; taken {
			line, col := part.ix.key(path)
			l.report.Problems = append(l.report.Problems, Problem{
				File: file.name, Line: line, Col: col, Key: path, Message: "a job of this name exists",
				Want: "another name than that of " + l.where(path),
			})
			continue
		}
		l.cfg.Jobs[name] = job
		l.jobFiles[path] = file
	}
	for path := range part.given {
		if strings.HasPrefix(path, "jobs.") {
			l.given[path] = ""
		}
	}
}
