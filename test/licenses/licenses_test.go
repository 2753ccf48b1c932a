package licenses

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/licenses.md")

const (
	list = "../../docs/licenses.md"
	head = `# Licences

These modules are linked into the program forge, under these licences. A test verifies the list. After a change of a
dependency, update it with ` + "`go test ./test/licenses -args -update`" + `. The test fails for an unknown licence, and for one
that requires more than attribution.

| module | licence |
|---|---|
`
)

// known licences are told by what stands in them and in none of those before. All
// of them let a program be shipped that names them; MPL-2.0 also wants the module's
// own changed files to be had, and forge changes none.
var known = []struct {
	name  string
	marks []string
}{
	{"Apache-2.0", []string{"apache license", "version 2.0, january 2004"}},
	{"MPL-2.0", []string{"mozilla public license", "version 2.0"}},
	{"BSD-3-Clause", []string{"redistribution and use in source and binary forms", "endorse or promote products"}},
	{"BSD-2-Clause", []string{"redistribution and use in source and binary forms"}},
	{"ISC", []string{"permission to use, copy, modify, and/or distribute this software for any purpose"}},
	{"ISC", []string{"permission to use, copy, modify, and distribute this software for any purpose"}},
	{"public domain", []string{"into the public domain"}},
	{"MIT", []string{"permission is hereby granted, free of charge, to any person obtaining a copy", "the above copyright notice"}},
}

// license names the licence of a text; empty: it is none that is known.
func license(text string) string {
	plain := strings.Join(strings.Fields(strings.ToLower(text)), " ")
	for _, l := range known {
		if !slices.ContainsFunc(l.marks, func(mark string) bool { return !strings.Contains(plain, mark) }) {
			return l.name
		}
	}
	return ""
}

type module struct {
	Path, Version, Dir string
	Main               bool
}

// linked lists the modules of which packages are linked into forge.
func linked(t *testing.T) map[string]module {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Module", "./cmd/forge")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]module{}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var pkg struct{ Module *module }
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if pkg.Module != nil && !pkg.Module.Main {
			found[pkg.Module.Path] = *pkg.Module
		}
	}
}

// licensesOf names the licences of a module, by the files at its root.
func licensesOf(t *testing.T, m module) string {
	t.Helper()
	names := map[string]bool{}
	for _, pattern := range []string{"LICEN[SC]E*", "COPYING*", "licen[sc]e*"} {
		files, err := filepath.Glob(filepath.Join(m.Dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // a folder of that name
			}
			name := license(string(text))
			if name == "" {
				t.Errorf("%s: %s is no licence that is known here", m.Path, filepath.Base(file))
			}
			names[name] = true
		}
	}
	if len(names) == 0 {
		t.Errorf("%s %s has no licence", m.Path, m.Version)
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

func TestLicensesOfWhatIsLinked(t *testing.T) {
	t.Parallel()
	text := &strings.Builder{}
	text.WriteString(head)
	modules := linked(t)
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		fmt.Fprintf(text, "| `%s` | %s |\n", path, licensesOf(t, modules[path]))
	}
	if *update {
		if err := os.WriteFile(list, []byte(text.String()), 0o644); err != nil { //nolint:gosec // documentation
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != text.String() {
		t.Error("docs/licenses.md is not the list of the linked modules; update it: go test ./test/licenses -args -update")
	}
}

func TestUnknownLicense(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "All rights reserved.", "GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007"} {
		if name := license(text); name != "" {
			t.Errorf("%q counts as %s", text, name)
		}
	}
}
