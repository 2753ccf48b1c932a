package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/migrations"
)

// TestExampleFollowsTheFirstNode checks that the example's self-check requests the address on which
// the first node listens.
func TestExampleFollowsTheFirstNode(t *testing.T) {
	t.Parallel()
	if !strings.Contains(forge.Example, "http://"+defaultListen+"/healthz") {
		t.Fatalf("the example calls nothing at %s", defaultListen)
	}
	moved := exampleAt("127.0.0.1:9090")
	if strings.Contains(moved, defaultListen) || !strings.Contains(moved, "http://127.0.0.1:9090/healthz") {
		t.Errorf("got %s", moved)
	}
	if exampleAt("127.0.0.1:0") != forge.Example {
		t.Error("an unknown port was written into the example")
	}
}

func TestDevGivesNodesItsLogLevel(t *testing.T) {
	t.Parallel()
	log := logFlags{format: devcluster.LogText, level: "debug"}
	if args := strings.Join(log.serveArgs(devcluster.Node{ID: "node-1"}), " "); !strings.HasSuffix(args, "--log-level debug") {
		t.Errorf("got %s", args)
	}
}

func TestDevKeepsEditedFileOfDataDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	path := filepath.Join(dir, "forge.toml")
	for _, c := range []struct {
		name, found, want string
	}{
		{"no file", "", exampleAt("127.0.0.1:9090")},
		{"the example", forge.Example, exampleAt("127.0.0.1:9090")},
		{"the example of another address", exampleAt("127.0.0.1:7070"), exampleAt("127.0.0.1:9090")},
		{"an edited example", exampleAt("127.0.0.1:7070") + "# mine\n", ""},
		{"another file", "[[crons]]\nname = \"mine\"\n", ""},
	} {
		if c.found != "" {
			if err := os.WriteFile(path, []byte(c.found), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		a := app{out: &out, err: &out}
		got, example, err := a.devConfig(&devcluster.Options{DataDir: dir, Listen: "127.0.0.1:9090"})
		if err != nil || got != path || example != c.want {
			t.Errorf("%s: %q, writes %d bytes, %v\n%s", c.name, got, len(example), err, &out)
		}
		if found, err := os.ReadFile(path); c.found != "" && string(found) != c.found {
			t.Errorf("%s: changed to %q: %v", c.name, found, err)
		}
	}
}

func TestCurrentLeadersAreThoseOfTheFile(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.URL(t)
	cfg := config.Default()
	cfg.Database.Schema, cfg.Node.Roles = "jobs", []string{"worker", "scheduler"}
	pool, err := postgres.NewPool(ctx, postgres.PoolOptions{URL: url, Schema: cfg.Database.Schema})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := errors.Join(postgres.EnsureSchema(ctx, pool, "jobs"), migrations.New(pool, discard()).Up(ctx)); err != nil {
		t.Fatal(err)
	}
	leaders, err := currentLeaders(ctx, cfg, url)
	if diff := cmp.Diff([]devcluster.Leader{{Role: "scheduler"}}, leaders); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
