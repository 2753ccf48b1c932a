// Command docs checks the documents of the project:
//
//   - Each link within the project leads to a file and a heading that exist.
//   - forge accepts each TOML example.
//   - go vet accepts each Go example. One that is not a complete file has the rest in a comment above it,
//     <!--go ... -->, in which a line "..." stands for the example.
//   - bash can parse each example in sh, and each command after "$ " in console or in no language. forge has
//     each of its commands and flags in them, and each command takes as many arguments.
//
// Usage:
//
//	docs -forge PROGRAM DIR
//
// PROGRAM is forge, which reads the examples. The command exits with 1 if it
// finds a mistake.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// finding is one mistake in a document.
type finding struct {
	file string
	line int
	text string
}

func main() {
	program := flag.String("forge", "", "`program` that reads the examples; required")
	flag.Parse()
	if flag.NArg() != 1 || *program == "" {
		fmt.Fprintln(os.Stderr, "usage: docs -forge PROGRAM DIR")
		os.Exit(2)
	}
	found, err := run(*program, flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(2)
	}
	for _, f := range found {
		fmt.Printf("%s:%d: %s\n", f.file, f.line, f.text)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

func run(program, dir string) ([]finding, error) {
	documents, err := readDocuments(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	var found []finding
	sorted := slices.SortedFunc(maps.Values(documents), func(a, b *document) int { return strings.Compare(a.path, b.path) })
	for _, d := range sorted {
		found = append(found, checkLinks(dir, d, documents)...)
		examples, err := checkExamples(program, d)
		if err != nil {
			return nil, err
		}
		found = append(found, examples...)
		commands, err := checkShell(program, d)
		if err != nil {
			return nil, err
		}
		found = append(found, commands...)
	}
	vetted, err := checkGo(dir, sorted)
	return append(found, vetted...), err
}

// readDocuments reads the Markdown files below dir, by their path relative to it.
func readDocuments(dir string) (map[string]*document, error) {
	documents := map[string]*document{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != dir && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		body, err := os.ReadFile(path) //nolint:gosec // a file of the checkout
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		documents[filepath.ToSlash(relative)] = parse(filepath.ToSlash(relative), body)
		return nil
	})
	return documents, err
}
