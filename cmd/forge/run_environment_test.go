package main

import (
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/devcluster"
)

// TestCommandEnvironment checks that the command of forge run does not get forge's secrets, except
// those passed on by name.
func TestCommandEnvironment(t *testing.T) {
	t.Parallel()
	environ := []string{
		"PATH=/bin", "DATABASE_URL=postgres://a:b@h/d", "FORGE_DATABASE_URL=postgres://a:b@h/d", "FORGE_DATABASE_LEADER_URL=x",
		"FORGE_METRICS_DEADMAN_URL=x", "FORGE_TOKEN=x", "FORGE_NODE_ID=web-1", "APP_DATABASE_URL=own",
	}
	want := []string{"PATH=/bin", "FORGE_NODE_ID=web-1", "APP_DATABASE_URL=own"}
	if diff := cmp.Diff(want, commandEnvironment(environ, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = []string{"PATH=/bin", "DATABASE_URL=postgres://a:b@h/d", "FORGE_NODE_ID=web-1", "APP_DATABASE_URL=own"}
	if diff := cmp.Diff(want, commandEnvironment(environ, []string{"DATABASE_URL"})); diff != "" {
		t.Errorf("with DATABASE_URL passed on (-want +got):\n%s", diff)
	}
}

// TestEnvironmentOfRun checks that forge run starts its command with commandEnvironment.
func TestEnvironmentOfRun(t *testing.T) {
	const secret = "FORGE_DATABASE_URL=postgres://a:b@h/d"
	t.Setenv("FORGE_DATABASE_URL", "postgres://a:b@h/d")
	for _, pass := range [][]string{nil, {"FORGE_DATABASE_URL"}} {
		flags := runFlags{role: "nightly", passEnv: pass, log: logFlags{level: "info", format: devcluster.LogJSON}}
		options, _, err := (&app{out: io.Discard, err: io.Discard}).singletonOptions(flags, []string{"true"})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(options.Environ, secret); got != (pass != nil) {
			t.Errorf("with %q passed on the command has the database's address: %v", pass, got)
		}
	}
}
