//go:build patroni || conformance

package chaos

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/parts"
)

// documentedBlock is the first block of a language in the page about Patroni.
func documentedBlock(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/high-availability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```"+language+"\n")
	block, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatalf("docs/high-availability.md has no block of %s", language)
	}
	return block
}

// startPatroni starts PostgreSQL under Patroni in a folder, with documented settings that adapt
// may change.
func startPatroni(t *testing.T, dir string, adapt *strings.Replacer) *parts.Patroni {
	t.Helper()
	patroni, err := parts.StartPatroni(t.Context(), parts.PatroniOptions{
		Dir: dir, BinDir: pgtest.BinDir(), HAProxy: documentedBlock(t, "haproxy"),
		Settings: adapt.Replace(documentedBlock(t, "yaml")),
	})
	if missing, ok := errors.AsType[*parts.MissingError](err); ok {
		pgtest.NotRun(t, missing.Part, missing.Install)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = patroni.Close() })
	return patroni
}
