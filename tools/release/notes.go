package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeChanges writes the section of the changelog about this version.
func (r *release) writeChanges(context.Context) error {
	all, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	changes, err := section(string(all), r.version)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "forge_"+r.version+"_changes.md"), []byte(changes), 0o644)
}

// section returns the text below the heading of a version. A version that no tag names, which is
// one of 0.0.0, has what is unreleased, or else the newest version.
func section(changelog, version string) (string, error) {
	untagged := strings.HasPrefix(version, "0.0.0-")
	for part := range strings.SplitSeq("\n"+changelog, "\n## ") {
		title, text, _ := strings.Cut(part, "\n")
		title, _, _ = strings.Cut(title, " ")
		if text = strings.TrimSpace(text); text != "" && (title == version || untagged && title != "" && title != "#") {
			return text + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no section %q", "## "+version)
}
