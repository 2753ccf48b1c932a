package main

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// TestTakeoverDelayOfRun checks that the flag overrides the file, and that the lease is the default.
func TestTakeoverDelayOfRun(t *testing.T) {
	t.Parallel()
	const (
		calm = "[cluster.leader_election]\nlease_duration = \"9s\"\n"
		own  = "[cluster.leader_election.roles.nightly]\ntakeover_delay = \"20s\"\n"
	)
	given := runFlags{role: "nightly", takeoverDelay: 0, delayGiven: true}
	for _, test := range []struct {
		file  string
		flags runFlags
		want  time.Duration
	}{
		{"", runFlags{role: "nightly"}, 3 * time.Second},
		{calm, runFlags{role: "nightly"}, 9 * time.Second},
		{calm + own, runFlags{role: "nightly"}, 20 * time.Second},
		{calm + own, runFlags{role: "weekly"}, 9 * time.Second},
		{calm + own, given, 0},
	} {
		cfg, report, err := config.Parse("forge.toml", []byte(test.file), config.LoadOptions{})
		if err != nil || len(report.Errors()) > 0 {
			t.Fatal(err, report.Errors())
		}
		if got := takeoverDelay(cfg, test.flags); got != test.want {
			t.Errorf("%q, %+v: %v; want %v", test.file, test.flags, got, test.want)
		}
	}
}

// TestLockOfRun checks that two roles cannot share a lock. If they did, only one of them could have
// a leader at a time.
func TestLockOfRun(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Cluster.LeaderElection.Roles = map[string]config.RoleOverrides{"nightly": {LockID: 5}, "scheduler": {LockID: 6}}
	for _, test := range []struct {
		flags runFlags
		want  int64 // 0 is an error
	}{
		{runFlags{role: "nightly"}, 5},
		{runFlags{role: "nightly", lockID: 7}, 7},
		{runFlags{role: "nightly", lockID: 6}, 0},
		{runFlags{role: "nightly", lockID: 0x464F524745_0002}, 0},
	} {
		if got, err := singletonLock(cfg, test.flags); got.ID != test.want && err == nil || (err == nil) != (test.want != 0) {
			t.Errorf("%+v: %d, %v; want %d", test.flags, got.ID, err, test.want)
		}
	}
}

// TestRunRefusesWrongLeaderURL checks that no process is a candidate in another database, and that a
// refused login is reported.
func TestRunRefusesWrongLeaderURL(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	refused, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	refused.User = url.UserPassword("forge_nobody", "hunter2")
	for _, test := range []struct {
		leaderURL, want string
		code            int
	}{
		{pgtest.URL(t), "lead to two databases", exitFailed},
		{refused.String(), "database.leader_url", exitDatabase},
	} {
		for _, args := range [][]string{
			{"run", "--role", "nightly", "--", "true"},
			{"sidecar", "--role", "nightly", "--file", filepath.Join(t.TempDir(), "leader")},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), nodes.WaitTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], args...)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), actAsForge+"=1", "FORGE_DATABASE_URL="+address, "FORGE_DATABASE_LEADER_URL="+test.leaderURL)
			out, _ := cmd.CombinedOutput() // the exit code shows a failure
			if code := cmd.ProcessState.ExitCode(); code != test.code || !strings.Contains(string(out), test.want) || strings.Contains(string(out), "hunter2") {
				t.Errorf("%s: exit %d, want %d with %q: %s", args[0], code, test.code, test.want, out)
			}
		}
	}
}
