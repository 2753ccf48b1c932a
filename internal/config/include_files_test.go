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
		make  func(f folder) // after crons.d/a.toml with the cron aa
		crons int
		want  []string
	}{
		{"CRLF and a byte order mark", func(f folder) {
			f.put("crons.d/b.toml", "\ufeff"+strings.ReplaceAll(includedCron("bb"), "\n", "\r\n"))
		}, 2, nil},
		{"a mistake after CRLF and a byte order mark", func(f folder) {
			f.put("crons.d/b.toml", "\ufeff"+strings.ReplaceAll(includedCron("bb")+"overlap = \"skp\"\n", "\n", "\r\n"))
		}, 0, []string{`crons.d/b.toml:5:11: crons[0].overlap: not a known value (got "skp"); want "skip"`}},
		{
			"UTF-16", func(f folder) { f.put("crons.d/b.toml", "\xff\xfe[\x00") }, 0,
			[]string{`crons.d/b.toml:1:1: the file is UTF-16; want UTF-8`},
		},
		{
			"Latin-1", func(f folder) { f.put("crons.d/b.toml", "# caf\xe9\n") }, 0,
			[]string{`crons.d/b.toml:1:6: invalid UTF-8 (got byte 0xe9); want UTF-8`},
		},
		{
			"half a file", func(f folder) { f.put("crons.d/b.toml", "[[crons]]\nname = \"bb\"\nsched") }, 0,
			[]string{`crons.d/b.toml:3:5: crons: unexpected EOF; expected key separator '='`},
		},
		{
			"an empty file", func(f folder) { f.put("crons.d/b.toml", "") }, 0,
			[]string{`crons.d/b.toml:1:1: the file is empty; want crons, jobs or a comment`},
		},
		{"a comment", func(f folder) { f.put("crons.d/b.toml", "# none yet\n") }, 1, nil},
		{
			"too large", func(f folder) { f.put("crons.d/b.toml", strings.Repeat("#", maxFileSize+1)) }, 0,
			[]string{`crons.d/b.toml:1:1: file too large; want at most 1 MiB; use several files`},
		},
		{
			"a directory", func(f folder) { f.put("crons.d/b.toml/c.toml", "") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: a directory, and directories are not searched recursively`},
		},
		{
			"a pattern whose directory is missing", func(f folder) {
				f.put("forge.toml", strings.Replace(includeAll, "[", `["gone/*.toml", `, 1))
			}, 0,
			[]string{`forge.toml:1:12: include[0]: gone: no such file or directory (got "gone/*.toml"); want a directory that can be read`},
		},
		{
			"a pattern whose directory is a file", func(f folder) {
				f.put("forge.toml", strings.Replace(includeAll, "[", `["crons.d/a.toml/*.toml", `, 1))
			}, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/a.toml: not a directory (got "crons.d/a.toml/*.toml"); want a directory that can be read`},
		},
		{"directories of which some are files or lack one", func(f folder) {
			f.put("forge.toml", strings.Replace(includeAll, "[", `["teams/*/crons/*.toml", `, 1))
			f.put("teams/README", "")
			f.put("teams/none/other.toml", "")
			f.put("teams/..data/crons/b.toml", includedCron("bb"))
			f.put("teams/one/crons/b.toml", includedCron("bb"))
		}, 2, nil},
		{
			"a link between directories that loops", func(f folder) {
				f.put("forge.toml", strings.Replace(includeAll, "[", `["teams/*/*.toml", `, 1))
				f.put("teams/one/b.toml", includedCron("bb"))
				f.link("loop", "teams/loop")
			}, 0,
			[]string{`forge.toml:1:12: include[0]: teams/loop: too many levels of symbolic links (got "teams/*/*.toml"); want a directory that can be read`},
		},
		{"hidden files", func(f folder) { f.put("crons.d/.b.toml", "half a fi") }, 1, nil},
		{"other files", func(f folder) { f.put("crons.d/b.toml~", "half a fi") }, 1, nil},
		{"a link to a file", func(f folder) {
			f.put("data/b.toml", includedCron("bb"))
			f.link("../data/b.toml", "crons.d/b.toml")
		}, 2, nil},
		{
			"a link to nothing", func(f folder) { f.link("gone", "crons.d/b.toml") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: no such file or directory`},
		},
		{
			"a link out of the directory", func(f folder) { f.link("/etc/passwd", "crons.d/b.toml") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: a link that leads out of the directory of forge.toml`},
		},
		{
			"a link to itself", func(f folder) { f.link("b.toml", "crons.d/b.toml") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: EvalSymlinks: too many links`},
		},
		{
			"a link to forge.toml", func(f folder) { f.link("../forge.toml", "crons.d/b.toml") }, 0,
			[]string{`forge.toml:1:12: include[0]: crons.d/b.toml: the configuration includes itself`},
		},
		{
			"an include of its own", func(f folder) { f.put("crons.d/b.toml", "include = [\"*.toml\"]\n") }, 0,
			[]string{`crons.d/b.toml:1:1: include: an included file holds only crons and jobs; want this in forge.toml`},
		},
		{
			"the database", func(f folder) {
				f.put("crons.d/b.toml", "[database]\nurl = \"postgres://u:secret@h/d\"\n")
			}, 0,
			[]string{`crons.d/b.toml:1:2: database: an included file holds only crons and jobs; want this in forge.toml`},
		},
		{
			"an unknown section", func(f folder) { f.put("crons.d/b.toml", "[[cron]]\nname = \"bb\"\n") }, 0,
			[]string{`crons.d/b.toml:1:3: cron: unknown section; want "crons"`},
		},
		{
			"one job in two files", func(f folder) {
				f.put("crons.d/b.toml", "# mine\n[jobs.tidy]\nkind = \"sql\"\nstatement = \"select 2\"\n")
			}, 0,
			[]string{`crons.d/b.toml:2:2: jobs.tidy: a job of this name exists; want another name than that of forge.toml:2`},
		},
		{
			"one name in other letters", func(f folder) { f.put("crons.d/b.toml", includedCron("AA")) }, 0,
			[]string{`crons.d/b.toml:2:8: crons[0].name: a cron of this name exists (got "AA"); want another name than that of crons.d/a.toml:2`},
		},
		{
			"an unknown job", func(f folder) {
				f.put("crons.d/b.toml", strings.Replace(includedCron("bb"), `"tidy"`, `"tidi"`, 1))
			}, 0,
			[]string{`crons.d/b.toml:4:7: crons[0].job: unknown job (got "tidi"); want "tidy"`},
		},
		{
			"a job beside a cron", func(f folder) {
				f.put("crons.d/b.toml", "# more\n"+includedCron("bb")+"[jobs.more]\nkind = \"sql\"\nstatement = \"select 1\"\nqueue = \"a b\"\n")
			}, 0,
			[]string{`crons.d/b.toml:9:9: jobs.more.queue: not a queue name (got "a b"); want 1 to 64 lower-case letters and digits, with single _ or - between them`},
		},
		{"commands that anyone may write", func(f folder) {
			f.put("crons.d/b.toml", shell)
			f.mode("crons.d/b.toml", 0o666)
		}, 0, []string{`crons.d/b.toml: anyone may write this file, and it defines shell jobs (got mode 0666); want chmod go-w crons.d/b.toml`}},
		{"commands in a directory that anyone may write", func(f folder) {
			f.put("crons.d/b.toml", shell)
			f.put("crons.d/c.toml", strings.Replace(shell, "run", "walk", 1))
			f.mode("crons.d", 0o777)
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
			test.make(folder{t, dir})
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

// folder makes files in a directory.
type folder struct {
	t   *testing.T
	dir string
}

func (f folder) put(name, text string) { put(f.t, f.dir, name, text) }

func (f folder) link(target, name string) {
	f.t.Helper()
	if err := os.Symlink(target, filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f folder) mode(name string, bits os.FileMode) {
	f.t.Helper()
	if err := os.Chmod(filepath.Join(f.dir, name), bits); err != nil {
		f.t.Fatal(err)
	}
}

// A file that is removed after it was found, before it is read.
func TestIncludedFileVanishes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLoader("forge.toml", LoadOptions{dir: dir, path: filepath.Join(dir, "forge.toml"), Environ: func() []string { return nil }})
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
		bound limits
		want  string
	}{
		{limits{files: 3, bytes: 1 << 20}, "forge.toml:1:12: include[0]: too many included files; want at most 3"},
		{limits{files: 4, bytes: 100}, "forge.toml:1:12: include[0]: the included files are too large; want at most 100 B in all"},
	} {
		if _, lines := loadDir(t, dir, LoadOptions{limits: test.bound}); len(lines) != 1 || lines[0] != test.want {
			t.Errorf("report %q, want %q", lines, test.want)
		}
	}
}

// The crons of all files count: from some number on there is a warning, and a limit.
func TestManyIncludedCrons(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "forge.toml", includeAll)
	for file := range 3 {
		put(t, dir, fmt.Sprintf("crons.d/%d.toml", file), includedCron(fmt.Sprintf("aa-%d", file))+includedCron(fmt.Sprintf("bb-%d", file)))
	}
	few := limits{files: 10, bytes: 1 << 20, manyCrons: 5, mostCrons: 6}
	cfg, lines := loadDir(t, dir, LoadOptions{limits: few})
	if cfg == nil || len(cfg.Crons) != 6 || len(lines) != 1 || !strings.Contains(lines[0], "warning: crons: very many crons (got 6)") {
		t.Errorf("report %q", lines)
	}
	put(t, dir, "crons.d/3.toml", includedCron("cc"))
	if _, lines = loadDir(t, dir, LoadOptions{limits: few}); len(lines) != 1 || !strings.Contains(lines[0], "crons: too many crons (got 7); want at most 6") {
		t.Errorf("report %q", lines)
	}
	if defaultLimits.mostCrons < 1_000_000 {
		t.Error("a million crons are too many")
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
