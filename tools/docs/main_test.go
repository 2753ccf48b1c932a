package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// refusing stands for forge: it refuses an example with the word wrong, and one whose
// secret is missing.
const refusing = `#!/bin/sh
grep -q secret "$3" && { echo "forge: $3:1:1: a: the environment variable S is not set"; exit 2; }
line=$(grep -n wrong "$3" | cut -d: -f1)
[ -z "$line" ] || { echo "forge: $3:$line:1: wrong: unknown key"; exit 2; }
`

// writeProgram writes a program while no process starts: that would share the open file, which
// could not be run then.
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeProgram(t, filepath.Join(dir, "forge"), refusing)
	write("README.md", `# Title

[guide](docs/guide.md), [part](docs/guide.md#the-part-of-a_b), [twice](docs/guide.md#twice-1), [site](https://example.com/none),
[gone](docs/gone.md), [no part](docs/guide.md#none), [here](#title), [not here](#guide), [out](../x).

`+"```toml\nright = 1\nwrong = 1\n```\n\n```toml\nsecret = 1\n```\n\n```sh\nwrong\n```\n")
	write("docs/guide.md", "# Guide\n\n## The part of `a_b`\n\n## Twice\n\n## Twice\n\n[up](../README.md)\n")

	found, err := run(filepath.Join(dir, "forge"), dir)
	if err != nil {
		t.Fatal(err)
	}
	got := texts(found)
	want := []string{
		"README.md:3: the link docs/gone.md leads to a file that does not exist",
		"README.md:3: the link docs/guide.md#none leads to a heading that does not exist",
		"README.md:3: the link #guide leads to a heading that does not exist",
		"README.md:3: the link ../x leaves the project",
		"README.md:8: wrong: unknown key",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestProgramThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := check("/bin/false", "a = 1"); err == nil {
		t.Error("a program that fails without a mistake has found none")
	}
}

// parsing stands for forge: it has the commands leader and leader status, with the flag --watch.
const parsing = `#!/bin/sh
[ "$1" = --help=true ] || exit 0
shift
path=forge
for arg; do
	case $arg in
	leader | status) path="$path $arg" ;;
	--watch) ;;
	-*) echo "forge: unknown flag: $arg"; exit 2 ;;
	esac
done
echo "Usage:"
echo "  $path [flags]"
[ "$path" = "forge leader status" ] || echo "  $path [command]"
`

func TestShellExamples(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		language, body string
		want           []string
	}{
		"right":              {"sh", "forge leader status --watch | grep scheduler\n", nil},
		"not bash":           {"sh", "true\nif true; then\n", []string{"d.md:4: `then` must be followed by a statement list"}},
		"unknown command":    {"sh", "cd x\nbin/forge leader stauts\n", []string{"d.md:4: forge leader has no command stauts"}},
		"unknown first word": {"sh", "forge laeder\n", []string{"d.md:3: forge has no command laeder"}},
		"unknown flag":       {"sh", "x=$(forge leader status --wach)\n", []string{"d.md:3: forge: unknown flag: --wach"}},
		"transcript":         {"console", "$ forge laeder\nforge is not run here (\n", []string{"d.md:3: forge has no command laeder"}},
		"output":             {"", "forge laeder (\n", nil},
		"other language":     {"toml", "forge laeder (\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(t.TempDir(), "forge")
			writeProgram(t, program, parsing)
			d := parse("d.md", []byte("# D\n```"+c.language+"\n"+c.body+"```\n"))
			found, err := checkShell(program, d)
			if err != nil {
				t.Fatal(err)
			}
			if got := texts(found); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestGoExamples(t *testing.T) {
	t.Parallel()
	const wrapper = "<!--go\nimport \"fmt\"\n\nfunc example(n int) {\n...\n}\n-->\n"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"complete":          {"```go\npackage main\n\nfunc main() {}\n```\n", nil},
		"wrapped":           {wrapper + "```go\nfmt.Println(n)\n```\n", nil},
		"does not compile":  {wrapper + "```go\nfmt.Println(n)\nfmt.Printn(n)\n```\n", []string{"docs/d.md:11: undefined: fmt.Printn"}},
		"vet finds":         {wrapper + "```go\nfmt.Printf(\"%s\", n)\n```\n", []string{"docs/d.md:10: fmt.Printf format %s has arg n of wrong type int"}},
		"without a wrapper": {"```go\nfmt.Println()\n```\n", []string{"docs/d.md:3: a part of a Go program needs the rest in a comment above it: <!--go ... -->, with a line ... for the part"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module d\n\ngo 1.26.0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			found, err := checkGo(dir, []*document{parse("docs/d.md", []byte("# D\n"+c.text))})
			if err != nil {
				t.Fatal(err)
			}
			if got := texts(found); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if left, err := filepath.Glob(filepath.Join(dir, ".docs*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func texts(found []finding) []string {
	var all []string
	for _, f := range found {
		all = append(all, fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text))
	}
	return all
}
