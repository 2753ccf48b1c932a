package pgtest

import (
	"fmt"
	"os"
	"testing"
)

// EnvNotRun names the environment variable with the file that collects the
// tests that could not run, for the list at the end of `make test`.
const EnvNotRun = "FORGE_TEST_NOT_RUN"

// NotRun ends a test that needs a real part that is missing here, say a
// browser: the test is listed at the end of the run with the way to install
// the part. With CI=true it fails instead. No other form of skipping is used.
func NotRun(tb testing.TB, part, install string) {
	tb.Helper()
	list(tb, tb.Name(), part, install)
	tb.Skipf("not run: %s is missing: %s", part, install) //nolint:forbidigo // the one place
}

// LeftOut lists what a test does without, as NotRun does, and the test goes on.
func LeftOut(tb testing.TB, what, part, install string) {
	tb.Helper()
	list(tb, tb.Name()+" without "+what, part, install)
	tb.Logf("without %s: %s is missing: %s", what, part, install)
}

func list(tb testing.TB, what, part, install string) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatalf("%s is missing: %s", part, install)
	}
	if path := os.Getenv(EnvNotRun); path != "" {
		if err := note(path, fmt.Sprintf("%s: %s is missing: %s\n", what, part, install)); err != nil {
			tb.Fatalf("list a test that is not run: %v", err)
		}
	}
}

// note appends a line in one write: several test binaries share the file.
func note(path, line string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
