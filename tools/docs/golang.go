package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// placeholder is the line of a wrapper that stands for the example below it.
const placeholder = "...\n"

// packageClause matches the clause of a complete file.
var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// goFile returns the file that go vet reads of a Go example: the example itself if it is complete, or the
// comment above it with the example in the place of its line "...".
func goFile(path string, e example) (string, error) {
	line := fmt.Sprintf("//line %s:%d\n", path, e.line)
	if packageClause.MatchString(e.body) {
		return line + e.body, nil
	}
	before, after, ok := strings.Cut(e.wrapper, placeholder)
	if !ok {
		return "", errors.New("a part of a Go program needs the rest in a comment above it: <!--go ... -->, with a line ... for the part")
	}
	return "package example\n" + before + line + e.body + "//line wrapper:1\n" + after, nil
}

// checkGo has go vet check the Go examples of all documents, each as a package of the module in dir. It needs a
// directory there for a moment.
func checkGo(dir string, documents []*document) ([]finding, error) {
	temp, err := os.MkdirTemp(dir, ".docs")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	var found []finding
	packages := map[string]*document{}
	for _, d := range documents {
		for _, e := range d.examples {
			if e.language != "go" {
				continue
			}
			text, err := goFile(filepath.Join(dir, d.path), e)
			if err != nil {
				found = append(found, finding{d.path, e.line, err.Error()})
				continue
			}
			name := strconv.Itoa(len(packages))
			if err := os.Mkdir(filepath.Join(temp, name), 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(temp, name, "main.go"), []byte(text), 0o600); err != nil {
				return nil, err
			}
			packages["./"+filepath.Base(temp)+"/"+name] = d
		}
	}
	if len(packages) == 0 {
		return found, nil
	}
	vetted, err := vet(dir, packages)
	return append(found, vetted...), err
}

// ofExample matches a finding of go vet in a document.
var ofExample = regexp.MustCompile(`(?m)^(?:vet: )?(\S+\.md):(\d+)(?::\d+)?: (.*)$`)

func vet(dir string, packages map[string]*document) ([]finding, error) {
	args := []string{"vet"}
	for name := range packages {
		args = append(args, name)
	}
	cmd := exec.Command("go", args...) //nolint:gosec,noctx // it ends
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil, nil
	}
	var found []finding
	for _, match := range ofExample.FindAllStringSubmatch(string(out), -1) {
		line, err := strconv.Atoi(match[2])
		if err != nil {
			return nil, err
		}
		path := match[1]
		for _, d := range packages {
			if strings.HasSuffix(path, "/"+d.path) {
				path = d.path
			}
		}
		found = append(found, finding{path, line, match[3]})
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("go vet: %w\n%s", err, out)
	}
	return found, nil
}
