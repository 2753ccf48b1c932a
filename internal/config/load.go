package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// DefaultPath is where Load looks last.
const DefaultPath = "forge.toml"

// LoadOptions are for tests and for programs that embed forge. The zero value
// reads the process's own environment.
type LoadOptions struct {
	// Environ returns variables as os.Environ does.
	Environ func() []string
	// JudgeAlert returns errors and warnings about an alert; kept is the retention of the
	// cluster's totals. The Key of a problem is the key in the alert. It may be nil: then
	// conditions and templates are not checked.
	JudgeAlert func(alert Alert, kept time.Duration) []Problem

	path, dir string
	limits    limits // zero: the defaults
	// onHost has the jobs checked against this host: the file is a node's own.
	onHost bool
	now    func() time.Time // nil: time.Now
}

func (o LoadOptions) environ() map[string]string {
	list := os.Environ
	if o.Environ != nil {
		list = o.Environ
	}
	variables := map[string]string{}
	for _, pair := range list() {
		if name, value, ok := strings.Cut(pair, "="); ok {
			variables[name] = value
		}
	}
	return variables
}

// Load reads the file at path, or at $FORGE_CONFIG, or ./forge.toml, and applies
// the environment. Without a file the error is ErrNotFound; with mistakes in it
// an *InvalidError, and the Config is nil. The Report holds the warnings too.
func Load(path string, options LoadOptions) (*Config, Report, error) {
	if path == "" {
		path = options.environ()["FORGE_CONFIG"]
	}
	if path == "" {
		path = DefaultPath
	}
	text, mode, err := readFile(path)
	if err != nil {
		return nil, Report{}, err
	}
	options.path, options.dir, options.onHost = path, filepath.Dir(path), true
	return parse(path, text, mode, options)
}

// Parse reads the text of a file; name stands in the problems. ${file:PATH}
// starts at the working directory.
func Parse(name string, text []byte, options LoadOptions) (*Config, Report, error) {
	return parse(name, text, 0, options)
}

func parse(name string, text []byte, mode fs.FileMode, options LoadOptions) (*Config, Report, error) {
	l := newLoader(name, options)
	if len(text) > maxFileSize {
		l.at(0, Problem{Message: "config too large", Want: "at most 1 MiB"})
	} else {
		l.load(string(text))
		l.permissions(mode)
	}
	if err := l.report.err(); err != nil {
		return nil, l.report, err
	}
	return l.cfg, l.report, nil
}

// readFile reads a configuration, and at most one byte more than is allowed.
func readFile(path string) ([]byte, fs.FileMode, error) {
	text, mode, err := readRegular(path, maxFileSize)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fmt.Errorf(`%s: %w (looked for --config, $FORGE_CONFIG and ./%s); "forge init" writes one`,
			path, ErrNotFound, DefaultPath)
	case err != nil:
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	return text, mode, nil
}

// readRegular reads a regular file, and at most one byte more than most. It does not wait
// for the writer of a pipe. Its error lacks the path.
func readRegular(path string, most int64) ([]byte, fs.FileMode, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, withoutPath(err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, 0, withoutPath(err)
	case info.IsDir():
		return nil, 0, syscall.EISDIR
	case !info.Mode().IsRegular():
		return nil, 0, errors.New("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, 0, withoutPath(err)
	}
	return text, info.Mode(), nil
}

// Bits of a file's mode.
const (
	groupWritable = 0o020
	worldWritable = 0o002
)

// permissions refuses commands from a file that anyone may change.
func (l *loader) permissions(mode fs.FileMode) {
	if l.definesCommands() {
		l.refuseWritable(l.name, mode, "this file, and it defines shell jobs")
	}
}

// refuseWritable reports a file or directory that anyone, or a group, may write.
func (l *loader) refuseWritable(name string, mode fs.FileMode, what string) {
	p := Problem{File: name, Got: fmt.Sprintf("mode %04o", mode.Perm()), Want: "chmod go-w " + name}
	switch {
	case mode&worldWritable != 0:
		p.Message = "anyone may write " + what
	case mode&groupWritable != 0:
		p.Message, p.Warning = "a group may write "+what, true
	default:
		return
	}
	l.report.Problems = append([]Problem{p}, l.report.Problems...)
}

func (l *loader) definesCommands() bool {
	for _, job := range l.cfg.Jobs {
		if job.Kind == KindShell {
			return true
		}
	}
	for _, cron := range l.cfg.Crons {
		if len(cron.Command) > 0 {
			return true
		}
	}
	return false
}
