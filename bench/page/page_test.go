package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// put writes a file below a folder.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	update := func() error { return run(t.Context(), []string{dir}, io.Discard, io.Discard) }
	if err := update(); err == nil || !strings.Contains(err.Error(), "make bench") {
		t.Errorf("an empty folder: %v", err)
	}
	put(t, dir, "bench/results/crons.txt", "\nmissed 0\n\n"+
		`{"bench":"crons","ratios":{"late":2.5},"values":{"missed":1234567,"late_ms":2559.04},"settings":{"machine":"2 CPUs","postgres":"15.18","date":"2026-11-22","trials":10}}`+"\n")
	put(t, dir, "bench/results/failover.txt", "kill 21 ms\n"+`{"bench":"failover","ratios":{},"values":{},"settings":{}}`)
	put(t, dir, "docs/other.md", "Missed <!--bench:crons.missed-->?<!--/-->, late <!--bench:crons.late_ms /1000 .1-->?<!--/--> s of "+
		"<!--bench:crons.late_ms-->?<!--/--> ms, <!--bench:crons.ratios.late-->?<!--/--> times, <!--bench:crons.settings.trials--><!--/--> trials.\n")
	if err := update(); err != nil {
		t.Fatal(err)
	}
	page := get(t, dir, benchmarks)
	for _, want := range []string{
		"## crons\n\nOn 2026-11-22, 2 CPUs, PostgreSQL 15.18:\n", "```\nmissed 0\n```\n", "## failover\n", "```\nkill 21 ms\n```\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if got, want := marker.ReplaceAllString(get(t, dir, "docs/other.md"), "$5"),
		"Missed 1,234,567, late 2.6 s of 2,559 ms, 2.5 times, 10 trials.\n"; got != want {
		t.Errorf("filled %q; want %q", got, want)
	}
}

func TestPageRefusesWhatItCannotFill(t *testing.T) {
	t.Parallel()
	for name, file := range map[string][2]string{
		"no result has this value": {"docs/a.md", "<!--bench:crons.lost-->1<!--/-->"},
		"another form":             {"docs/a.md", "<!--bench:crons-->1<!--/-->"},
		"is no format":             {"docs/a.md", "<!--bench:crons.missed /0-->1<!--/-->"},
		"has the bench ended?":     {"bench/results/losses.txt", "killed in the midst"},
		`the bench "crons"`:        {"bench/results/losses.txt", `{"bench":"crons"}`},
	} {
		dir := t.TempDir()
		put(t, dir, "bench/results/crons.txt", `{"bench":"crons","values":{"missed":1}}`)
		put(t, dir, file[0], file[1])
		if err := run(t.Context(), []string{dir}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v; want %s", file[1], err, name)
		}
	}
}

// Every figure of the documentation that has a marker is the result's.
func TestDocumentsHaveTheResults(t *testing.T) {
	t.Parallel()
	documents, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	markers := 0
	for name, want := range documents {
		got := get(t, root, name)
		markers += len(marker.FindAllString(got, -1))
		if got != want {
			t.Errorf("%s is not what the results say; run go run ./bench/page", name)
		}
	}
	if markers == 0 {
		t.Error("no document has a marker")
	}
}

// notMeasured are documents that report nothing of what runs now.
var notMeasured = []string{benchmarks, "docs/licenses.md", "CHANGELOG.md"}

// Every figure of the documentation that was measured has a marker.
func TestMeasuredFiguresHaveMarkers(t *testing.T) {
	t.Parallel()
	documents, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range documents {
		if slices.Contains(notMeasured, name) {
			continue
		}
		for _, sentence := range unsourced(text) {
			t.Errorf("%s: measured, and no result has it: %s", name, sentence)
		}
	}
}

func TestMeasuredFigures(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"A report of a node takes 38 ms, the database's part included.",
		"A hundred alerts take the leader 40 ms at each interval.",
		"With the defaults a receiver was told 41 to 46 s after the last scheduler had been killed.",
		"It took 252 s of the compactor, pauses included: 17,600 lines a second beside a node.",
		"On two\ncores that were overloaded SIGTERM took 118 ms at worst.",
		"| fault | bound | p50 |\n|---|---|---|\n| SIGTERM | 100 ms | 22 ms |",
		"| | fast |\n|---|---|\n| SIGKILL to the next term, measured, worst | 285 ms (8) |",
		"A report took three seconds.",
		"The indexes cost half of a job's WAL.",
		"A check costs the server a few milliseconds.",
		"Lines are split into columns, which halves the result.",
		"- **Jobs.** On two cores one node worked 21,100 jobs a second.",
	} {
		if len(unsourced(text)) != 1 {
			t.Errorf("%d measured figures in %q; want 1", len(unsourced(text)), text)
		}
	}
	for _, text := range []string{
		"A job is available again within 2 s.", "The lease is 3 s.", "`took` is 12.3 ms.", "```\ntook 12.3 ms\n```\n",
		"It took <!--bench:crons.late_ms-->12<!--/--> ms.", "| `lease` | 3 s |", "A statement takes at most 200 ms.",
	} {
		if found := unsourced(text); len(found) != 0 {
			t.Errorf("%q is measured in %q", found, text)
		}
	}
}

// Every bench has a target of its own, is one of those that make bench runs, and has a
// result.
func TestMakeRunsEveryBench(t *testing.T) {
	t.Parallel()
	makefile := get(t, root, "Makefile")
	list := regexp.MustCompile(`(?m)^BENCHES \?= (.*)$`).FindStringSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no BENCHES")
	}
	programs, err := filepath.Glob(filepath.Join(root, "bench", "*", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	var benches []string
	for _, program := range programs {
		name := filepath.Base(filepath.Dir(program))
		if name == "page" {
			continue
		}
		benches = append(benches, name)
		if !strings.Contains(makefile, "\nbench-"+name+":") {
			t.Errorf("make has no target bench-%s", name)
		}
		if !strings.Contains(makefile, "go -C bench run ./"+name) {
			t.Errorf("make does not run bench/%s", name)
		}
		if _, err := os.Stat(filepath.Join(root, "bench", "results", name+".txt")); err != nil {
			t.Errorf("a bench without a result: %v", err)
		}
	}
	listed := strings.Fields(list[1])
	slices.Sort(listed)
	if !slices.Equal(listed, benches) {
		t.Errorf("make bench runs %q; want %q", listed, benches)
	}
}

// Each result names the command that make bench runs, so that everybody can repeat it.
func TestResultsAreOfMakeBench(t *testing.T) {
	t.Parallel()
	results, err := readResults(filepath.Join(root, "bench", "results"))
	if err != nil {
		t.Fatal(err)
	}
	shortened := map[string][]string{}
	for _, set := range regexp.MustCompile(`(?m)^(BENCHFLAGS|FOR)_(\w+) +\?= (.*)$`).FindAllStringSubmatch(get(t, root, "Makefile"), -1) {
		shortened[set[2]] = append(shortened[set[2]], set[1]+"="+set[3])
	}
	for name, result := range results {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory", "--dry-run", "bench-" + name}, shortened[name]...)...)
		cmd.Dir = root
		printed, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		command, _, _ := strings.Cut(result.text, "\n")
		if !slices.ContainsFunc(strings.Split(string(printed), "\n"), func(line string) bool {
			return strings.TrimSpace(line) == strings.TrimSpace(command)
		}) {
			t.Errorf("%s: the result is of %q; make bench runs\n%s", name, command, printed)
		}
		if twice := repeated(command); twice != "" {
			t.Errorf("%s: %q has %s twice", name, command, twice)
		}
		for _, setting := range []string{"date", "machine"} {
			if result.Settings[setting] == nil || !strings.Contains(result.text, fmt.Sprintf("%s: %v\n", setting, result.Settings[setting])) {
				t.Errorf("%s: the result does not print its setting %s", name, setting)
			}
		}
	}
}

// repeated returns a flag that a command line has more than once.
func repeated(command string) string {
	seen := map[string]bool{}
	for word := range strings.FieldsSeq(command) {
		flag, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(flag, "-") && seen[flag] {
			return flag
		}
		seen[flag] = true
	}
	return ""
}

// Every picture of the documentation is shown, and make screenshots takes it.
func TestPicturesAreShownAndCanBeTaken(t *testing.T) {
	t.Parallel()
	documents, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, text := range documents {
		all.WriteString(text)
	}
	source := get(t, root, "test/screenshots/picture.go")
	pictures, err := os.ReadDir(filepath.Join(root, "docs", "images"))
	if err != nil {
		t.Fatal(err)
	}
	for _, picture := range pictures {
		if !strings.Contains(all.String(), "images/"+picture.Name()) {
			t.Errorf("no document shows %s", picture.Name())
		}
		if !strings.Contains(source, `"`+picture.Name()+`"`) {
			t.Errorf("make screenshots does not take %s", picture.Name())
		}
	}
	if len(pictures) == 0 {
		t.Error("no pictures")
	}
}
