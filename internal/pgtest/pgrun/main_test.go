package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRunGivesTheCommandAServer(t *testing.T) {
	t.Setenv("FORGE_TEST_DATABASE_URL", "")
	var stdout, stderr bytes.Buffer
	code, err := run([]string{"--", "sh", "-c", `
		echo "$FORGE_TEST_DATABASE_URL"
		echo 'TestB: nginx is missing: apt-get install nginx' >> "$FORGE_TEST_NOT_RUN"
		echo 'TestA: Chromium is missing: apt-get install chromium' >> "$FORGE_TEST_NOT_RUN"
		exit 7`}, &stdout, &stderr)
	if code != 7 || err != nil {
		t.Errorf("run: %d, %v\n%s", code, err, &stderr)
	}
	if !strings.HasPrefix(stdout.String(), "postgres://postgres:") {
		t.Errorf("the command saw %q", stdout.String())
	}
	want := "not run here (2):\n  TestA: Chromium is missing: apt-get install chromium\n  TestB: nginx is missing: apt-get install nginx\n"
	if !strings.HasSuffix(stdout.String(), want) {
		t.Errorf("the output ends with %q, want %q", stdout.String(), want)
	}
}

func TestRunUsesAGivenServer(t *testing.T) {
	t.Setenv("FORGE_TEST_DATABASE_URL", "postgres://given")
	t.Setenv("FORGE_TEST_POSTGRES_BIN", "")
	var stdout, stderr bytes.Buffer
	code, err := run([]string{"--", "sh", "-c", `echo "$FORGE_TEST_DATABASE_URL"`}, &stdout, &stderr)
	if code != 0 || err != nil || stdout.String() != "postgres://given\n" {
		t.Errorf("run: %d, %v, %q", code, err, stdout.String())
	}
}

// Somebody who works with forge has its variables set; no test may read them.
func TestRunHidesForgesOwnVariables(t *testing.T) {
	t.Setenv("FORGE_TEST_DATABASE_URL", "postgres://given")
	t.Setenv("FORGE_TEST_POSTGRES_BIN", "")
	for _, name := range []string{"FORGE_DATABASE_URL", "DATABASE_URL", "FORGE_CONFIG"} {
		t.Setenv(name, "production")
	}
	var stdout, stderr bytes.Buffer
	if code, err := run([]string{"--", "env"}, &stdout, &stderr); code != 0 || err != nil {
		t.Errorf("run: %d, %v", code, err)
	}
	if got := stdout.String(); strings.Contains(got, "=production") || !strings.Contains(got, "FORGE_TEST_DATABASE_URL=postgres://given") {
		t.Errorf("the command saw\n%s", got)
	}
}

func TestRunSaysWhatItCannotRun(t *testing.T) {
	t.Setenv("FORGE_TEST_DATABASE_URL", "postgres://given")
	t.Setenv("FORGE_TEST_POSTGRES_BIN", "")
	var stdout, stderr bytes.Buffer
	if code, err := run([]string{"--", "/no/such/command"}, &stdout, &stderr); code != 1 || err == nil {
		t.Errorf("run: %d, %v", code, err)
	}
	if code, err := run(nil, &stdout, &stderr); code != 2 || err == nil {
		t.Errorf("run without a command: %d, %v", code, err)
	}
}
