// Command page writes what the benches have printed into the documentation.
//
//	go -C bench run ./page [ROOT]
//
// Each file bench/results/NAME.txt below ROOT (default: ..) is the output of one bench:
// text, and as the last line the JSON object that names the bench, its values and its
// settings. All of them together are docs/benchmarks.md. Every other document takes a
// measured figure from there by a marker, which names the bench and the value:
//
//	<!--bench:failover.kill_p50_ms-->18<!--/-->
//	<!--bench:failover.stop_p50_ms /1000 .1-->2.6<!--/-->
//
// A name that begins with ratios. or settings. is that of a ratio or a setting. /N
// divides the value, .N prints it with N digits after the point: without it a value
// below 10 has one, others have none.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

func main() { rig.Main("page", run) }

func run(_ context.Context, args []string, stdout, _ io.Writer) error {
	root := ".."
	switch len(args) {
	case 0:
	case 1:
		root = args[0]
	default:
		return errors.New("want the folder of the repository, or nothing")
	}
	documents, err := render(root)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(documents)) {
		before, err := os.ReadFile(filepath.Join(root, path)) //nolint:gosec // named by the user
		if err == nil && string(before) == documents[path] {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(documents[path]), 0o644); err != nil { //nolint:gosec // part of the repository
			return err
		}
		fmt.Fprintln(stdout, path)
	}
	return nil
}

// benchmarks is the document of all results.
const benchmarks = "docs/benchmarks.md"

// render returns each document as the results want it, by its path below root.
func render(root string) (map[string]string, error) {
	results, err := readResults(filepath.Join(root, "bench", "results"))
	if err != nil {
		return nil, err
	}
	documents := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			text, err := os.ReadFile(path) //nolint:gosec // found in the repository
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			if documents[filepath.ToSlash(name)], err = fill(string(text), results); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	documents[benchmarks] = page(results)
	return documents, nil
}
