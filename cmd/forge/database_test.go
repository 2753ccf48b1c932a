package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/devcluster"
)

// TestMissingDatabaseSuggestsTheOneOfForgeDev checks that the error for a missing address says how
// to use the database of a forge dev that runs from this directory.
func TestMissingDatabaseSuggestsTheOneOfForgeDev(t *testing.T) {
	t.Chdir(t.TempDir())
	const hint = "export FORGE_DATABASE_URL="
	if err := requireDatabase(&config.Config{}); err == nil || strings.Contains(err.Error(), hint) {
		t.Errorf("nothing runs: %v", err)
	}
	folder, err := devcluster.DefaultDataDir()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, devcluster.URLFile)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("postgres://here"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := requireDatabase(&config.Config{}); err == nil || !strings.HasSuffix(err.Error(), hint+`"$(cat `+file+`)"`) {
		t.Errorf("forge dev runs: %v", err)
	}
}
