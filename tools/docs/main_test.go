package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// refusing stands for forge: it refuses an example with the word wrong, and one whose
// secret is missing.
const refusing = `#!/bin/sh
grep -q secret "$3" && { echo "forge: $3:1:1: a: the environment variable S is not set"; exit 2; }
line=$(grep -n wrong "$3" | cut -d: -f1)
[ -z "$line" ] || { echo "forge: $3:$line:1: wrong: unknown key"; exit 2; }
`

func TestFindings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("forge", refusing, 0o700)
	write("README.md", `# Title

[guide](docs/guide.md), [part](docs/guide.md#the-part-of-a_b), [twice](docs/guide.md#twice-1), [site](https://example.com/none),
[gone](docs/gone.md), [no part](docs/guide.md#none), [here](#title), [not here](#guide), [out](../x).

`+"```toml\nright = 1\nwrong = 1\n```\n\n```toml\nsecret = 1\n```\n\n```sh\nwrong\n```\n", 0o600)
	write("docs/guide.md", "# Guide\n\n## The part of `a_b`\n\n## Twice\n\n## Twice\n\n[up](../README.md)\n", 0o600)

	found, err := run(filepath.Join(dir, "forge"), dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text))
	}
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
