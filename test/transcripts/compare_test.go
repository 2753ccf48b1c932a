package transcripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want, got string
		same      bool
	}{
		"equal":                  {"ok: 1 crons", "ok: 1 crons", true},
		"another word":           {"fired", "skipped", false},
		"another count":          {"crons: 1 to add", "crons: 2 to add", false},
		"another term":           {"node-1 2026-11-25T17:28:25Z 1", "node-1 2026-11-25T17:28:25Z 2", false},
		"times":                  {"at 2026-11-25T17:28:25Z took 2.4ms", "at 2027-01-01T00:00:00Z took 1m3s", true},
		"time and duration":      {"at 2026-11-25T17:28:25Z", "at 2.4ms", false},
		"ids":                    {"job 42; see forge job show 42", "job 7; see forge job show 7", true},
		"missing line":           {"a\nb", "a", false},
		"further line":           {"a", "a\nb", false},
		"blank lines and widths": {"A   B\n\nc", "A B\nc\n", true},
		"any lines":              {"a\n...\nd", "a\nb\nc\nd", true},
		"any lines, none":        {"a\n...\nd", "a\nd", true},
		"any lines, wrong end":   {"a\n...\nd", "a\nb\nc", false},
		"nothing":                {"", "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if same, _ := compare(strings.Split(c.want, "\n"), strings.Split(c.got, "\n")); same != c.same {
				t.Errorf("compare(%q, %q) = %v", c.want, c.got, same)
			}
		})
	}
}

func TestValuesOfTheRunAreUsedInLaterCommands(t *testing.T) {
	t.Parallel()
	_, values := compare(
		[]string{"26 report 2026-11-25T17:28:30Z", "fail over kill -9 27171 (node-1)"},
		[]string{"8 report 2027-01-01T00:00:00Z", "fail over kill -9 4549 (node-2)"})
	for page, run := range map[string]string{
		"forge job show 26": "forge job show 8", "kill -9 27171": "kill -9 4549",
		"forge cron why report 2026-11-25T17:28:30Z": "forge cron why report 2027-01-01T00:00:00Z",
		"forge job show 27":                          "forge job show 27",
	} {
		if got := substitute(page, values); got != run {
			t.Errorf("%q becomes %q, want %q", page, got, run)
		}
	}
}

func TestPagesThatCannotBeRun(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no end":            "```console\n$ true\n",
		"no command":        "```console\noutput\n```\n",
		"unknown word":      "```console evntually\n$ true\n```\n",
		"two in background": "```console background\n$ true\n$ true\n```\n",
	} {
		path := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		blocks, err := readPage(path)
		for _, b := range blocks {
			if err == nil && b.is(0, "console") {
				_, err = b.commands()
			}
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
