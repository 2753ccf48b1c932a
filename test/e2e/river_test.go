package e2e

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the fenced blocks of a language in a document.
func blocks(document, language string) (found []string) {
	for _, match := range regexp.MustCompile("(?ms)^ *```"+language+"\n(.*?)^ *```$").FindAllStringSubmatch(document, -1) {
		found = append(found, match[1])
	}
	return found
}

// The diff of docs/river.md makes one example the other.
func TestRiverDocumentShowsTheWholeChange(t *testing.T) {
	t.Parallel()
	code := func(path string) string {
		_, text, _ := strings.Cut(readFile(t, path), "\npackage main\n")
		return regexp.MustCompile(` //nolint.*`).ReplaceAllString(text, "")
	}
	changed := code("examples/river/before/main.go")
	diff := blocks(readFile(t, "docs/river.md"), "diff")
	if len(diff) != 1 {
		t.Fatalf("%d diffs in the document, want 1", len(diff))
	}
	for _, hunk := range regexp.MustCompile(`(?m)^@@.*\n`).Split(diff[0], -1)[1:] {
		var before, after strings.Builder
		for line := range strings.Lines(hunk) {
			if line[0] != '+' {
				before.WriteString(line[1:])
			}
			if line[0] != '-' {
				after.WriteString(line[1:])
			}
		}
		if strings.Count(changed, before.String()) != 1 {
			t.Fatalf("not once in the program on River:\n%s", before.String())
		}
		changed = strings.Replace(changed, before.String(), after.String(), 1)
	}
	if want := code("examples/river/after/main.go"); changed != want {
		t.Errorf("the diff makes\n%s\nbut the program on forge is\n%s", changed, want)
	}
}

// A program moves from River to forge and back on one table: each version works
// what the other left, and the statements of docs/river.md hold.
func TestProgramMovesFromRiverAndBack(t *testing.T) {
	t.Parallel()
	dir, url := t.TempDir(), pgtest.EmptyURL(t)
	c := clusterOn(t, url, "")
	statements := blocks(readFile(t, "docs/river.md"), "sql")
	const left = `INSERT INTO river_job (kind, args, max_attempts, state, attempt, attempted_by) VALUES
		('send_receipt', '{"item": "glue"}', 25, 'available', 0, NULL),
		('send_receipt', '{"item": "wire"}', 25, 'running', 1, '{killed}')` // by a client that is gone
	for i, version := range []string{"before", "after", "before"} {
		program, err := nodes.Build(dir, "examples/river/"+version)
		if err != nil {
			t.Fatal(err)
		}
		p := launchProgram(t, program, []string{"DATABASE_URL=" + url, "FORGE_NODE_ID=shop", "FORGE_HTTP_LISTEN=" + nodes.AnyPort})
		want := 3 + 5*i // three of its own, two that were left
		eventually(t, version+" has worked all", func() bool {
			var n int
			err := c.pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job WHERE state = 'completed'`).Scan(&n)
			return err == nil && n == want
		})
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if <-p.done; p.Err() != nil || !strings.Contains(p.output.String(), "receipt for one rocket sent") {
			t.Fatalf("%s: %v\n%s", version, p.Err(), p.output)
		}
		c.exec(left)
		c.exec(statements[0])
		if version == "after" {
			c.exec(statements[1])
		}
	}
	if n := c.number(`SELECT count(*) FROM pg_indexes WHERE indexname IN ('river_job_args_index', 'river_job_metadata_index')`); n != 2 {
		t.Errorf("%d of River's two indexes are there again", n)
	}
}
