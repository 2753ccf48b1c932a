package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWideIsATable checks that a command without wide columns prints its table with -o wide.
func TestWideIsATable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	forge := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), append(args, "--config", path), &out, &errs); code != 0 {
			t.Errorf("forge %v: exit %d: %s", args, code, errs.String())
		}
		return out.String()
	}
	forge("init")
	for _, command := range [][]string{{"check"}, {"config", "show"}} {
		table, wide := forge(command...), forge(append(command, "-o", "wide")...)
		if table == "" || wide != table {
			t.Errorf("forge %v -o wide printed %q, and without %q", command, wide, table)
		}
	}
}

// TestUnknownOutputDoesNothing checks that an unknown output is rejected before the command runs.
func TestUnknownOutputDoesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"init", "--config", path, "-o", "xml"}, &out, &errs); code != exitUsage {
		t.Errorf("exit %d, want %d: %s", code, exitUsage, errs.String())
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it wrote the file")
	}
}

// TestTablesRemoveControlSequences checks that tables and property lists print untrusted text
// without control sequences.
func TestTablesRemoveControlSequences(t *testing.T) {
	t.Parallel()
	columns := []column[string]{{title: "error", show: func(s string) string { return s }}}
	for _, print := range []func(*app) error{
		func(a *app) error {
			return list(a, []string{"disk\x1b]0;title\x07 \x1b[31mfull\u202e\x00\u009b1m"}, columns)
		},
		func(a *app) error { return one(a, "disk\x1b]0;title\x07 \x1b[31mfull\u202e\x00\u009b1m", columns) },
	} {
		var out bytes.Buffer
		if err := print(&app{out: &out, format: "table"}); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, "disk full") || strings.ContainsAny(got, "\x1b\x07\x00\u009b\u202e") {
			t.Errorf("printed %q", got)
		}
	}
}
