// Command monitoring writes the files for Prometheus and Grafana: the alert rules and the
// dashboard of a cluster.
//
//	go -C tools run ./monitoring ..
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: monitoring REPOSITORY")
		os.Exit(2)
	}
	for path, text := range files() {
		if err := os.WriteFile(filepath.Join(os.Args[1], path), []byte(text), 0o644); err != nil { //nolint:gosec // they are public
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// files returns the contents of the files by their paths in the repository.
func files() map[string]string {
	return map[string]string{
		"deploy/prometheus/rules.yml": writeRules(),
		"deploy/grafana/forge.json":   writeDashboard(),
	}
}
