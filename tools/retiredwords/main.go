// Command retiredwords finds words that the project no longer uses, in the
// identifiers, comments and strings of its Go files and in its other text files.
//
// Usage:
//
//	retiredwords LIST DIR
//
// LIST has one entry a line: the word, where it is retired ("name" for Go identifiers
// and file names, "text" for comments, strings and documents, "any" for both), and what to
// write instead. An identifier is compared part by part: "file" matches "newFile" and
// not "profile". The command exits with 1 if it finds a word.
package main

import (
	"bufio"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// entry is one line of the list.
type entry struct {
	names, texts bool
	instead      string
}

// words are the entries by their word, in lower case.
type words map[string]entry

// finding is one place where a retired word stands.
type finding struct {
	file          string
	line          int
	word, instead string
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: retiredwords LIST DIR")
		os.Exit(2)
	}
	found, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, f := range found {
		fmt.Printf("%s:%d: retired word %q: write %s\n", f.file, f.line, f.word, f.instead)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

func run(list, dir string) ([]finding, error) {
	retired, err := readList(list)
	if err != nil {
		return nil, err
	}
	var found []finding
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if isSkipped(entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Clean(path) == filepath.Clean(list) || !isText(path) || isLanded(path) {
			return nil
		}
		body, err := os.ReadFile(path) //nolint:gosec // a file of the checkout
		if err != nil {
			return err
		}
		found = append(found, retired.findInFileName(path)...)
		if filepath.Ext(path) == ".go" {
			found = append(found, retired.findInGo(path, body)...)
		} else {
			found = append(found, retired.findInText(path, 1, string(body))...)
		}
		return nil
	})
	return found, err
}

// isSkipped reports whether a directory holds nothing that people write: build output, downloads,
// other people's files, recorded data.
func isSkipped(name string) bool {
	return slices.Contains([]string{".git", ".cache", "bin", "node_modules", "testdata", "results"}, name)
}

// isLanded reports whether a file is a migration: those never change.
func isLanded(path string) bool {
	return filepath.Ext(path) == ".sql" && filepath.Base(filepath.Dir(path)) == "migrations"
}

func isText(path string) bool {
	return slices.Contains([]string{".go", ".sql", ".md", ".toml", ".html", ".js", ".css", ".yml", ".yaml", ".service"}, filepath.Ext(path)) ||
		filepath.Base(path) == "Makefile"
}

func readList(path string) (words, error) {
	body, err := os.ReadFile(path) //nolint:gosec // named by the caller
	if err != nil {
		return nil, err
	}
	retired := words{}
	lines := bufio.NewScanner(strings.NewReader(string(body)))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 || !slices.Contains([]string{"name", "text", "any"}, fields[1]) {
			return nil, fmt.Errorf("%s:%d: found %q, want: WORD name|text|any INSTEAD", path, n, line)
		}
		retired[strings.ToLower(fields[0])] = entry{
			names:   fields[1] != "text",
			texts:   fields[1] != "name",
			instead: strings.Join(fields[2:], " "),
		}
	}
	return retired, lines.Err()
}

func (w words) findInFileName(path string) (found []finding) {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	for _, part := range parts(name) {
		if e, ok := w[part]; ok && e.names {
			found = append(found, finding{path, 1, part, e.instead})
		}
	}
	return found
}

func (w words) findInGo(path string, body []byte) (found []finding) {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile(path, -1, len(body)), body, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		line := files.Position(pos).Line
		switch tok {
		case token.EOF:
			return found
		case token.IDENT:
			for _, part := range parts(text) {
				if e, ok := w[part]; ok && e.names {
					found = append(found, finding{path, line, part, e.instead})
				}
			}
		case token.COMMENT, token.STRING:
			found = append(found, w.findInText(path, line, text)...)
		}
	}
}

// findInText compares whole words, and the parts of words that are identifiers.
func (w words) findInText(path string, line int, text string) (found []finding) {
	for l := range strings.SplitSeq(text, "\n") {
		for _, word := range strings.FieldsFunc(l, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }) {
			for _, part := range parts(word) {
				if e, ok := w[part]; ok && e.texts {
					found = append(found, finding{path, line, part, e.instead})
				}
			}
		}
		line++
	}
	return found
}

// parts splits an identifier into its words, in lower case: "newHTTPFile" and
// "new_http_file" are new, http, file.
func parts(name string) (parts []string) {
	runes := []rune(name)
	start := 0
	add := func(end int) {
		if end > start {
			parts = append(parts, strings.ToLower(string(runes[start:end])))
		}
		start = end
	}
	for i, r := range runes {
		switch {
		case r == '_' || r == '-':
			add(i)
			start = i + 1
		case i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			add(i)
		}
	}
	add(len(runes))
	return parts
}
