package promises

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root    = "../.."
	heading = "## What proves it\n"
)

var (
	testName = regexp.MustCompile("`(Test\\w+)`")
	filePath = regexp.MustCompile("`([\\w./-]+/[\\w./-]+|[\\w-]+_test\\.go)`")
	cells    = regexp.MustCompile(`\s*\|\s*`)
)

// found returns the first group of each match.
func found(pattern *regexp.Regexp, text string) []string {
	var all []string
	for _, groups := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, groups[1])
	}
	return all
}

// table returns the rows below the heading, each as its cells.
func table(t *testing.T, text string) [][]string {
	t.Helper()
	_, section, ok := strings.Cut(text, heading)
	if !ok {
		t.Fatalf("no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows [][]string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| promise") {
			rows = append(rows, cells.Split(strings.Trim(line, "| \n"), -1))
		}
	}
	return rows
}

// Each test stands in one of its row's files, and each file has one of its row's tests.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := table(t, string(text))
	if len(rows) == 0 {
		t.Fatal("the table has no rows")
	}
	for _, row := range rows {
		if len(row) != 3 {
			t.Errorf("%d cells, want 3: %q", len(row), row)
			continue
		}
		checkRow(t, found(testName, row[1]), found(filePath, row[2]))
	}
}

func checkRow(t *testing.T, tests, files []string) {
	t.Helper()
	if len(tests) == 0 || len(files) == 0 {
		t.Errorf("a row names no test or no file: %q, %q", tests, files)
	}
	missing := slices.Clone(tests)
	for _, file := range files {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Error(err)
			continue
		}
		in := func(test string) bool { return strings.Contains(string(source), "\nfunc "+test+"(t *testing.T)") }
		if !slices.ContainsFunc(tests, in) {
			t.Errorf("%s has none of %q", file, tests)
		}
		missing = slices.DeleteFunc(missing, in)
	}
	if len(missing) > 0 {
		t.Errorf("%q have none of %q", files, missing)
	}
}

// A path elsewhere in the page exists, too.
func TestSecurityNamesPathsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), heading)
	for _, path := range found(regexp.MustCompile("`((?:internal|cmd|test|docs|dashboard|jobs|roles)/[\\w./-]+)`"), before) {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(path))); err != nil {
			t.Error(err)
		}
	}
}

var linkedTest = regexp.MustCompile(`\[(Test\w+)\]\(([\w./-]+)\)`)

// Each test that README.md names stands where its link leads: in the file, or in a file
// of the folder.
func TestReadmeNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	links := linkedTest.FindAllStringSubmatch(string(text), -1)
	if len(links) == 0 {
		t.Fatal("README.md names no tests")
	}
	for _, link := range links {
		checkLink(t, link[1], filepath.Join(root, filepath.FromSlash(link[2])))
	}
}

// checkLink checks that a test is in the file or folder at a path.
func checkLink(t *testing.T, test, path string) {
	t.Helper()
	files := []string{path}
	if filepath.Ext(path) != ".go" {
		var err error
		if files, err = filepath.Glob(filepath.Join(path, "*_test.go")); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file) //nolint:gosec // of this repository
		return err == nil && strings.Contains(string(source), "\nfunc "+test+"(t *testing.T)")
	}) {
		t.Errorf("%s is not in %s", test, path)
	}
}

// Each symptom of docs/troubleshooting.md has a row in the table at its end, with tests that exist.
func TestEverySymptomHasATest(t *testing.T) {
	t.Parallel()
	docs := filepath.Join(root, "docs")
	text, err := os.ReadFile(filepath.Join(docs, "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	symptoms, rows, ok := strings.Cut(string(text), "\n## Tests of these symptoms\n")
	if !ok {
		t.Fatal("there is no table of tests")
	}
	headings := found(regexp.MustCompile(`(?m)^## (.*)$`), symptoms)
	if len(headings) == 0 {
		t.Fatal("there are no symptoms")
	}
	for _, heading := range headings {
		_, row, ok := strings.Cut(rows, "\n| ["+heading+"](")
		row, _, _ = strings.Cut(row, "\n")
		tests := linkedTest.FindAllStringSubmatch(row, -1)
		if !ok || len(tests) == 0 {
			t.Errorf("no test makes the symptom %q", heading)
		}
		for _, test := range tests {
			checkLink(t, test[1], filepath.Join(docs, filepath.FromSlash(test[2])))
		}
	}
}
