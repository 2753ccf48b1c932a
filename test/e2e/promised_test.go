package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// slack is how many times the promise something may take in a test, which shares its
// machine with others.
const slack = 10

// promised returns the bound of docs/leadership.md for a cluster that elects by locks.
func promised(t *testing.T, what string) time.Duration {
	t.Helper()
	doc, err := os.ReadFile("../../docs/leadership.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(what) + ` \| ([\d.]+ m?s) \|`).FindSubmatch(doc)
	if row == nil {
		t.Fatalf("docs/leadership.md promises nothing for %q", what)
	}
	bound, err := time.ParseDuration(strings.ReplaceAll(string(row[1]), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

// keepsPromise fails the test if something took ten times as long as is promised.
func keepsPromise(t *testing.T, what string, took time.Duration) {
	t.Helper()
	bound := promised(t, what)
	t.Logf("%s: %v; %v are promised", what, took.Round(time.Millisecond), bound)
	if took > slack*bound {
		t.Errorf("%s: %v; %v are promised, and a test bears ten times that", what, took, bound)
	}
}

// keepsLease fails the test if a role was free for longer than a lease, and ten times
// what docs/leadership.md promises beyond the default one.
func keepsLease(t *testing.T, what string, took, lease time.Duration) {
	t.Helper()
	const defaultLease = 3 * time.Second
	beyond := promised(t, what) - defaultLease
	t.Logf("%s: %v with a lease of %v; %v beyond it are promised", what, took.Round(time.Millisecond), lease, beyond)
	if took > lease+slack*beyond {
		t.Errorf("%s: %v with a lease of %v; %v beyond it are promised, and a test bears ten times that", what, took, lease, beyond)
	}
}

// Every promise of the table has a test that fails if it is broken.
func TestEveryPromiseIsMeasured(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/leadership.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "\n| | by locks | by lease |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(source)
	}
	rows := strings.Split(table, "\n")
	if len(rows) < 8 {
		t.Fatalf("the table has the rows %q", rows)
	}
	for _, row := range rows {
		name := strings.TrimSpace(strings.Split(row, "|")[1])
		if !strings.Contains(tests.String(), `keepsPromise(t, "`+name+`"`) && !strings.Contains(tests.String(), `keepsLease(t, "`+name+`"`) {
			t.Errorf("no test measures %q", name)
		}
	}
}

// median is the middle one of some times.
func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}
