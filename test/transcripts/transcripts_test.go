package transcripts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

const docs = "../../docs/"

var buildForge = sync.OnceValues(func() (string, error) { return nodes.Build(builds, "cmd/forge") })

// builds is a directory for programs that outlives the first test.
var builds string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "forge-transcripts-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	builds = dir
	return m.Run()
}

// path returns the variable PATH of a shell that finds forge and PostgreSQL.
func path(t *testing.T) string {
	t.Helper()
	program, err := buildForge()
	if err != nil {
		t.Fatal(err)
	}
	return "PATH=" + strings.Join([]string{filepath.Dir(program), pgtest.BinDir(), os.Getenv("PATH")}, ":")
}

func TestMoving(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"moving-crontab.md", "moving-kubernetes.md", "moving-pg-cron.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			Start(t, t.TempDir(), path(t)).RunPage(docs + page)
		})
	}
}

// TestTroubleshooting makes symptoms on a node, and runs the commands that explain them.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/troubleshooting.toml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "forge.toml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	variables := []string{path(t), "FORGE_DATABASE_URL=" + pgtest.URL(t)}
	program, _ := buildForge() // path has built it
	node, output := nodes.Launch(t, program, variables, "serve", "--config", config, "--node-id", "node-1", "--listen", nodes.AnyPort)
	node.AwaitReady(t, output)
	Start(t, dir, variables...).RunPage(docs + "troubleshooting.md")
}

// TestTutorials runs both tutorials on one cluster, word for word.
func TestTutorials(t *testing.T) {
	t.Parallel()
	s := Start(t, nodes.OpenDir(t), path(t), "CGO_ENABLED=0", "GOFLAGS=-trimpath -ldflags=-w",
		// A slow machine must not cost a leader its term: the pages show the terms.
		"FORGE_CLUSTER_LEADER_ELECTION_LEASE_DURATION=1m")
	s.RunPage(docs + "tutorial.md")
	demandEveryTick(t, s, "hello")
	s.useThisModule()
	s.RunPage(docs + "tutorial-go.md")
	s.Interrupt()
}

// demandEveryTick checks that a cron of every second has one row for each second of its history, of two terms.
func demandEveryTick(t *testing.T, s *Session, cron string) {
	t.Helper()
	text, code := s.Run("forge cron history " + cron + " --limit 1000 -o json")
	var ticks []struct {
		Tick time.Time `json:"tick"`
		Term int64     `json:"term"`
	}
	if err := json.Unmarshal([]byte(text), &ticks); err != nil || code != 0 {
		t.Fatalf("history: exit %d, %v: %s", code, err, text)
	}
	if len(ticks) == 0 || ticks[0].Term <= ticks[len(ticks)-1].Term {
		t.Errorf("%d ticks do not span two terms: %s", len(ticks), text)
	}
	for i := range ticks[1:] {
		if gap := ticks[i].Tick.Sub(ticks[i+1].Tick); gap != time.Second {
			t.Errorf("%v between %s and %s", gap, ticks[i+1].Tick, ticks[i].Tick)
		}
	}
}

// useThisModule lets programs of the shell's directory import forge from this work tree: the page gets it from
// the network.
func (s *Session) useThisModule() {
	s.tb.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, command := range []string{
		"go work init " + root,
		"mkdir shop && (cd shop && go mod init shop)",
		"go work use shop",
	} {
		if output, code := s.Run(command); code != 0 {
			s.tb.Fatalf("%s: %s", command, output)
		}
	}
}
