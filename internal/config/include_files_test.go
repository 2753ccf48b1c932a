package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What included files may be, however they were made.
func TestIncludedFiles(t *testing.T) {
	t.Parallel()
	shell := "[[crons]]\nname = \"run\"\nschedule = \"@daily\"\ncommand = [\"/bin/true\"]\n"
	for _, test := range []struct {
		name  string
		make  func(t *testing.T, dir string) // after crons.d/a.toml with the cron aa
		crons int
		want  []string
	}{
		{"CRLF and a byte order mark", func(t *testing.T, dir string) {
			put(t, dir, "crons.d/b.toml", "\ufeff"+strings.ReplaceAll(includedCron("bb"), "\n", "\r\n"))
		}, 2, nil},
		{"a mistake after CRLF and a byte order mark", func(t *testing.T, dir string) {
			put(t, dir, "crons.d/b.toml", "\ufeff"+strings.ReplaceAll(includedCron("bb")+"overlap = \"skp\"\n", "\n", "\r\n"))
		}, 0, []string{`crons.d/b.toml:5:11: crons[0].overlap: not a known value (got "skp"); want "skip"`}},
		{
			"UTF-16", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml", "\xff\xfe[\x00") }, 0,
			[]string{`crons.d/b.toml:1:1: the file is UTF-16; want UTF-8`},
		},
		{
			"Latin-1", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml", "# caf\xe9\n") }, 0,
			[]string{`crons.d/b.toml:1:6: invalid UTF-8 (got byte 0xe9); want UTF-8`},
		},
		{
			"half a file", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml", "[[crons]]\nname = \"bb\"\nsched") }, 0,
			[]string{`crons.d/b.toml:3:5: crons: unexpected EOF; expected key separator '='`},
		},
		{
			"an empty file", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml", "") }, 0,
			[]string{`crons.d/b.toml:1:1: the file is empty; want crons, jobs or a comment`},
		},
		{"a comment", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml", "# none yet\n") }, 1, nil},
		{
			"too large", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml", strings.Repeat("#", maxFileSize+1)) }, 0,
			[]string{`crons.d/b.toml:1:1: file too large; want at most 1 MiB; use several files`},
		},
		{
			"a directory", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml/c.toml", "") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: a directory, and directories are not searched recursively`},
		},
		{"hidden files", func(t *testing.T, dir string) { put(t, dir, "crons.d/.b.toml", "half a fi") }, 1, nil},
		{"other files", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml~", "half a fi") }, 1, nil},
		{"a link to a file", func(t *testing.T, dir string) {
			put(t, dir, "data/b.toml", includedCron("bb"))
			link(t, dir, "../data/b.toml", "crons.d/b.toml")
		}, 2, nil},
		{
			"a link to nothing", func(t *testing.T, dir string) { link(t, dir, "gone", "crons.d/b.toml") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: no such file or directory`},
		},
		{
			"a link out of the directory", func(t *testing.T, dir string) { link(t, dir, "/etc/passwd", "crons.d/b.toml") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: a link that leads out of the directory of forge.toml`},
		},
		{
			"a link to itself", func(t *testing.T, dir string) { link(t, dir, "b.toml", "crons.d/b.toml") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: EvalSymlinks: too many links`},
		},
		{
			"a link to forge.toml", func(t *testing.T, dir string) { link(t, dir, "../forge.toml", "crons.d/b.toml") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: the configuration includes itself`},
		},
		{
			"an include of its own", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml", "include = [\"*.toml\"]\n") }, 0,
			[]string{`crons.d/b.toml:1:1: include: an included file holds only crons and jobs; want this in forge.toml`},
		},
		{
			"the database", func(t *testing.T, dir string) {
				put(t, dir, "crons.d/b.toml", "[database]\nurl = \"postgres://u:secret@h/d\"\n")
			}, 0,
			[]string{`crons.d/b.toml:1:2: database: an included file holds only crons and jobs; want this in forge.toml`},
		},
		{
			"an unknown section", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml", "[[cron]]\nname = \"bb\"\n") }, 0,
			[]string{`crons.d/b.toml:1:3: cron: unknown section; want "crons"`},
		},
		{
			"one job in two files", func(t *testing.T, dir string) {
				put(t, dir, "crons.d/b.toml", "# mine\n[jobs.tidy]\nkind = \"sql\"\nstatement = \"select 2\"\n")
			}, 0,
			[]string{`crons.d/b.toml:2:2: jobs.tidy: a job of this name exists; want another name than that of forge.toml:2`},
		},
		{
			"one name in other letters", func(t *testing.T, dir string) { put(t, dir, "crons.d/b.toml", includedCron("AA")) }, 0,
			[]string{`crons.d/b.toml:2:8: crons[0].name: a cron of this name exists (got "AA"); want another name than that of crons.d/a.toml:2`},
		},
		{
			"an unknown job", func(t *testing.T, dir string) {
				put(t, dir, "crons.d/b.toml", strings.Replace(includedCron("bb"), `"tidy"`, `"tidi"`, 1))
			}, 0,
			[]string{`crons.d/b.toml:4:7: crons[0].job: unknown job (got "tidi"); want "tidy"`},
		},
		{"commands that anyone may write", func(t *testing.T, dir string) {
			put(t, dir, "crons.d/b.toml", shell)
			mode(t, dir, "crons.d/b.toml", 0o666)
		}, 0, []string{`crons.d/b.toml: anyone may write this file, and it defines shell jobs (got mode 0666); want chmod go-w crons.d/b.toml`}},
		{"commands in a directory that anyone may write", func(t *testing.T, dir string) {
			put(t, dir, "crons.d/b.toml", shell)
			put(t, dir, "crons.d/c.toml", strings.Replace(shell, "run", "walk", 1))
			mode(t, dir, "crons.d", 0o777)
		}, 0, []string{`crons.d: anyone may write this directory, and its files define shell jobs (got mode 0777); want chmod go-w crons.d`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			put(t, dir, "forge.toml", includeAll)
			put(t, dir, "crons.d/a.toml", includedCron("aa"))
			test.make(t, dir)
			cfg, lines := loadDir(t, dir, LoadOptions{})
			if diff := cmp.Diff(test.want, lines); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if cfg != nil && len(cfg.Crons) != test.crons {
				t.Errorf("%d crons, want %d", len(cfg.Crons), test.crons)
			}
		})
	}
}

// A file that is removed after it was found, before it is read.
func TestIncludedFileVanishes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLoader("forge.toml", "", LoadOptions{dir: dir, path: filepath.Join(dir, "forge.toml"), Environ: func() []string { return nil }})
	if _, ok := l.includeFile("include[0]", filepath.Join(dir, "gone.toml")); ok {
		t.Error("a file that is gone was read")
	}
	if got := l.report.Problems[0].Message; !strings.Contains(got, "gone.toml: no such file or directory") {
		t.Errorf("message %q", got)
	}
}

func TestIncludePatterns(t *testing.T) {
	t.Parallel()
	const want = `; want a path under the directory of this file, such as "crons.d/*.toml"`
	for pattern, line := range map[string]string{
		"../*.toml":      `a path outside of the directory of this file (got "../*.toml")` + want,
		"/etc/*.toml":    `a path outside of the directory of this file (got "/etc/*.toml")` + want,
		"":               `a path outside of the directory of this file (got "")` + want,
		"crons.d/[.toml": `not a pattern (got "crons.d/[.toml")` + want,
		"**/*.toml":      `directories are not searched recursively (got "**/*.toml"); want one * for each level, such as "teams/*/*.toml"`,
		"one.toml":       `no such file (got "one.toml")`,
	} {
		dir := t.TempDir()
		put(t, dir, "forge.toml", fmt.Sprintf("include = [%q]\n", pattern))
		_, lines := loadDir(t, dir, LoadOptions{})
		if diff := cmp.Diff([]string{"forge.toml:1:12: include[0]: " + line}, lines); diff != "" {
			t.Errorf("%q (-want +got):\n%s", pattern, diff)
		}
	}
}

// Files that match two patterns, or one pattern twice, are read once.
func TestFilesAreIncludedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "forge.toml", strings.Replace(includeAll, "[", `["crons.d/a.toml", `, 1))
	put(t, dir, "crons.d/a.toml", includedCron("aa"))
	if cfg, lines := loadDir(t, dir, LoadOptions{}); lines != nil || len(cfg.Crons) != 1 {
		t.Errorf("report %q", lines)
	}
}

func TestIncludeLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "forge.toml", includeAll)
	for i := range 4 {
		put(t, dir, fmt.Sprintf("crons.d/%d.toml", i), includedCron(fmt.Sprintf("cron-%d", i)))
	}
	for _, test := range []struct {
		limits includeLimits
		want   string
	}{
		{includeLimits{files: 3, bytes: 1 << 20}, "forge.toml:1:12: include[0]: too many included files; want at most 3"},
		{includeLimits{files: 4, bytes: 100}, "forge.toml:1:12: include[0]: the included files are too large; want at most 100 B in all"},
	} {
		if _, lines := loadDir(t, dir, LoadOptions{limits: test.limits}); len(lines) != 1 || lines[0] != test.want {
			t.Errorf("report %q, want %q", lines, test.want)
		}
	}
}

// Above 100,000 crons there is a warning, wherever they stand.
func TestManyIncludedCrons(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "forge.toml", includeAll)
	for file := range 21 {
		var text strings.Builder
		for i := range 5000 {
			text.WriteString(includedCron(fmt.Sprintf("cron-%d-%d", file, i)))
		}
		put(t, dir, fmt.Sprintf("crons.d/%d.toml", file), text.String())
	}
	cfg, lines := loadDir(t, dir, LoadOptions{})
	if cfg == nil || len(cfg.Crons) != 105_000 || len(lines) != 1 || !strings.Contains(lines[0], "warning: crons: very many crons (got 105,000)") {
		t.Errorf("report %q", lines)
	}
}

// The effective configuration holds what was included, and can be read without the files.
func TestShowsIncludedCrons(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "forge.toml", includeAll)
	put(t, dir, "crons.d/a.toml", includedCron("aa"))
	cfg, _ := loadDir(t, dir, LoadOptions{})
	var text strings.Builder
	if err := cfg.Show(&text); err != nil {
		t.Fatal(err)
	}
	again, _, err := Parse("shown", []byte(text.String()), LoadOptions{Environ: func() []string { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	_, hash, err := cfg.ClusterSections()
	_, shown, againErr := again.ClusterSections()
	if errors.Join(err, againErr) != nil || hash != shown || len(again.Include) != 0 {
		t.Errorf("hash %s, shown %s\n%s", hash, shown, text.String())
	}
	if _, included := cfg.Effective()["include"]; included {
		t.Error("the effective configuration includes files")
	}
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, dir, target, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, dir, name string, bits os.FileMode) {
	t.Helper()
	if err := os.Chmod(filepath.Join(dir, name), bits); err != nil {
		t.Fatal(err)
	}
}
