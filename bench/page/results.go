package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// result is what one bench has printed.
type result struct {
	rig.Result

	text string // for people
}

// readResults reads every NAME.txt of a folder, by NAME.
func readResults(folder string) (map[string]result, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no NAME.txt; make bench writes them", folder)
	}
	results := map[string]result{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if results[name], err = readResult(file, name); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func readResult(file, name string) (result, error) {
	body, err := os.ReadFile(file) //nolint:gosec // found in the folder
	if err != nil {
		return result{}, err
	}
	text := strings.TrimRight(string(body), "\n")
	at := strings.LastIndexByte(text, '\n') + 1
	r := result{text: strings.Trim(text[:at], "\n")}
	if err := json.Unmarshal([]byte(text[at:]), &r.Result); err != nil {
		return result{}, fmt.Errorf("%s: the last line is not a bench's result; has the bench ended? %w", file, err)
	}
	if r.Bench != name {
		return result{}, fmt.Errorf("%s is a result of the bench %q", file, r.Bench)
	}
	return r, nil
}

const head = `# Benchmarks

` + "`make bench`" + ` runs every bench, writes its output to ` + "`bench/results`" + `, and writes this page from there. The head of each source, ` + "`bench/NAME`" + `, says
what the bench does and what its columns mean. A bench with a peer runs forge and the peer in turns, in one run on one machine: compare ratios,
not figures of two machines. Measured figures on other pages come from these results. [Reproduce the figures](reproduce.md) says how to run them on
your machine, or on a server of its own.
`

// page is docs/benchmarks.md.
func page(results map[string]result) string {
	text := &strings.Builder{}
	text.WriteString(head)
	for _, name := range slices.Sorted(maps.Keys(results)) {
		r := results[name]
		fmt.Fprintf(text, "\n## %s\n\nOn %v", name, r.Settings["date"])
		for _, setting := range []struct{ key, before string }{{"machine", ""}, {"postgres", "PostgreSQL "}, {"postgresql", "PostgreSQL "}} {
			if value, ok := r.Settings[setting.key]; ok {
				fmt.Fprintf(text, ", %s%v", setting.before, value)
			}
		}
		fmt.Fprintf(text, ":\n\n```\n%s\n```\n", r.text)
	}
	return text.String()
}
