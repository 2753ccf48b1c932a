package main

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
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
