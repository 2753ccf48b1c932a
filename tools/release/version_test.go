package main

import (
	"strings"
	"testing"
	"time"
)

func TestVersionIsTheTag(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 25, 13, 45, 24, 0, time.UTC)
	for want, tags := range map[string]string{
		"0.1.0":      "v0.1.0",
		"0.1.1":      "v0.1.1 v0.1.0",
		"0.2.0-rc.1": "nightly v0.2.0-rc.1",
		version:      "",
	} {
		if got := versionOf(strings.Fields(tags), commit, at); got != want {
			t.Errorf("%q: got %s, want %s", tags, got, want)
		}
	}
}

func TestSectionOfTheChangelog(t *testing.T) {
	t.Parallel()
	const changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0-rc.1 - 2026-11-20\n\n- candidate\n\n## 0.1.0 - 2026-12-01\n\n### Added\n\n- first\n"
	for version, want := range map[string]string{
		"0.1.0":           "### Added\n\n- first\n",
		"0.1.0-rc.1":      "- candidate\n",
		"0.0.0-20261125-": "- new\n",
	} {
		if got, err := section(changelog, version); err != nil || got != want {
			t.Errorf("%s: got %q, %v", version, got, err)
		}
	}
	if got, err := section(changelog, "0.2.0"); err == nil {
		t.Errorf("a version without a section: %q", got)
	}
	if got, err := section("## Unreleased\n\n## 0.1.0\n\n- first\n", "0.0.0-1"); err != nil || got != "- first\n" {
		t.Errorf("with nothing unreleased: %q, %v", got, err)
	}
}
