package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeChart writes the Helm chart as a package, under the name that Helm gives it. The chart's
// version and that of the program are the release's.
func (r *release) writeChart(context.Context) error {
	dir := filepath.Join(r.root, "deploy", "helm", "forge")
	entries, err := tree(dir, "forge")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return err
	}
	described := string(text)
	for _, key := range []string{"version", "appVersion"} {
		line := "\n" + key + ": 0.0.0\n"
		if strings.Count(described, line) != 1 {
			return fmt.Errorf("Chart.yaml has no line %q", strings.TrimSpace(line))
		}
		described = strings.Replace(described, line, fmt.Sprintf("\n%s: %q\n", key, r.version), 1)
	}
	versioned := filepath.Join(r.work, "Chart.yaml")
	if err := os.WriteFile(versioned, []byte(described), 0o644); err != nil {
		return err
	}
	for i := range entries {
		if entries[i].name == "forge/Chart.yaml" {
			entries[i].from = versioned
		}
	}
	return writeTarGz(filepath.Join(r.out, "forge-"+r.version+".tgz"), entries, r.at)
}
