package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := &strings.Builder{}
	if err := run(t.Context(), []string{dir}, out, io.Discard); err == nil || !strings.Contains(err.Error(), "make bench") {
		t.Errorf("an empty folder: %v", err)
	}
	put("crons.txt", "\nmissed 0\n\n"+`{"bench":"crons","ratios":{},"values":{"missed":0},"settings":{"machine":"2 CPUs","postgres":"15.18"}}`+"\n")
	put("failover.txt", "kill 21 ms\n"+`{"bench":"failover","ratios":{},"values":{},"settings":{}}`)
	if err := run(t.Context(), []string{dir}, out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## crons\n", ", 2 CPUs, PostgreSQL 15.18:\n", "```\nmissed 0\n```\n", "## failover\n", "```\nkill 21 ms\n```\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, out)
		}
	}
	put("earlier.md", out.String())
	put("crons.txt", "missed 1\n"+`{"bench":"crons"}`)
	if err := os.Remove(filepath.Join(dir, "failover.txt")); err != nil {
		t.Fatal(err)
	}
	again := &strings.Builder{}
	if err := run(t.Context(), []string{dir, filepath.Join(dir, "earlier.md")}, again, io.Discard); err != nil {
		t.Fatal(err)
	}
	_, failover, _ := strings.Cut(out.String(), "## failover")
	if got := again.String(); !strings.HasSuffix(got, "## failover"+failover) || !strings.Contains(got, "missed 1\n") || strings.Contains(got, "missed 0") {
		t.Errorf("one bench again, and the page is now:\n%s", got)
	}
	put("losses.txt", "killed in the midst")
	if err := run(t.Context(), []string{dir}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "losses.txt") {
		t.Errorf("an output without an end: %v", err)
	}
}
