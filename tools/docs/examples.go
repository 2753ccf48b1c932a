package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// atLine is the beginning of a mistake that forge check reports: FILE:LINE:COLUMN:.
var atLine = regexp.MustCompile(`^(?:forge: )?.*?\.toml:(\d+):\d+: (.*)$`)

// elsewhere are the mistakes of an example only because it is read on another machine than
// the reader's: secrets and files that are not here.
var elsewhere = []string{"the environment variable", "no such file or directory"}

// checkExamples has forge check each TOML example of a document.
func checkExamples(program string, d *document) ([]finding, error) {
	var found []finding
	for _, e := range d.examples {
		if e.language != "toml" {
			continue
		}
		mistakes, err := check(program, e.body)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", d.path, e.line, err)
		}
		for _, m := range mistakes {
			found = append(found, finding{d.path, e.line + m.line - 1, m.text})
		}
	}
	return found, nil
}

// check returns what forge finds in a file, by the file's lines.
func check(program, body string) ([]finding, error) {
	dir, err := os.MkdirTemp("", "docs")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "forge.toml")
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "check", "--config", file) //nolint:gosec,noctx // forge, which ends by itself
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err == nil || !errors.As(err, &exit) {
		return nil, err
	}
	return mistakes(out)
}

// mistakes reads what forge check wrote about a file that it refused.
func mistakes(out []byte) ([]finding, error) {
	var found []finding
	read := false
	for text := range strings.Lines(string(bytes.TrimSpace(out))) {
		match := atLine.FindStringSubmatch(strings.TrimSpace(text))
		if match == nil {
			continue
		}
		read = true
		if strings.HasPrefix(match[2], "warning:") || isElsewhere(match[2]) {
			continue
		}
		line, err := strconv.Atoi(match[1])
		if err != nil {
			return nil, err
		}
		found = append(found, finding{line: line, text: match[2]})
	}
	if !read {
		return nil, fmt.Errorf("forge check failed: %s", out)
	}
	return found, nil
}

func isElsewhere(mistake string) bool {
	for _, reason := range elsewhere {
		if strings.Contains(mistake, reason) {
			return true
		}
	}
	return false
}
