package doctor

import (
	"errors"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// TestChecksOfLink covers the connections of this machine.
func TestChecksOfLink(t *testing.T) {
	t.Parallel()
	testChecks(t, map[string]checkCase{
		"warnings of the file": {func(f *Facts) {
			f.Warnings = []config.Problem{{File: "forge.toml", Line: 3, Col: 1, Key: "alerts", Message: "not evaluated", Want: "rules", Warning: true}}
		}, "configuration", Warn, []string{"forge.toml:3:1: alerts: not evaluated", "want rules"}},
		"unreachable": {
			func(f *Facts) { f.Election.Err = errors.New("connection refused") },
			"connection", Fail,
			[]string{"connection refused", "check database.leader_url"},
		},
		"two databases": {func(f *Facts) { f.TwoDatabases = true }, "connection", Fail, []string{"lead to two databases", "one database"}},
		"not all read":  {func(f *Facts) { f.Err = errors.New("list nodes: boom") }, "connection", Fail, []string{"boom"}},
		"pooler in transaction mode": {
			func(f *Facts) { f.Election.Pooled, f.Election.Shared = true, true },
			"pooler", Fail,
			[]string{"database.leader_url", "transaction mode", `strategy = "lease"`},
		},
		"pooler in transaction mode, by lease": {func(f *Facts) {
			f.Election.Pooled, f.Election.Shared = true, true
			f.Config.Cluster.LeaderElection.Strategy = "lease"
		}, "pooler", OK, []string{"transaction mode"}},
		"pooler in session mode": {func(f *Facts) { f.Election.Pooled = true }, "pooler", OK, []string{"session mode"}},
		"pooler before the pool alone": {func(f *Facts) {
			f.Config.Database.LeaderURL = "postgres://direct/forge"
			f.Pool.Key, f.Pool.Shared = poolURL, true
		}, "pooler", Fail, []string{"database.url"}},
		"replica": {
			func(f *Facts) { f.Election.Replay, f.Election.ReadOnly = postgres.Replay{Replica: true}, "promote it" },
			"primary", Fail,
			[]string{"replica", "has replayed nothing since it started", "promote it"},
		},
		"replica that lags": {
			func(f *Facts) {
				f.Election.Replay, f.Election.ReadOnly = postgres.Replay{Replica: true, Until: now, Age: 90 * time.Second}, "promote it"
			},
			"primary", Fail,
			[]string{"its data may be 1m30s old", "it has replayed the changes until " + now.Local().Format("2006-01-02 15:04:05")},
		},
		"read-only": {func(f *Facts) { f.Election.ReadOnly = "set it to off" }, "primary", Fail, []string{"takes no writes", "set it to off"}},
		"refresh beyond the trust": {
			func(f *Facts) {
				f.Config.Cluster.LeaderElection.RefreshInterval = config.Duration(2500 * time.Millisecond)
			},
			"lease", Fail,
			[]string{"trusts its lead for 2.4s", "renews it each 2.5s", "a third"},
		},
		"far away":   {func(f *Facts) { f.Election.RoundTrip = 2 * time.Second }, "lease", Fail, []string{"round trip", "1.65s", "lease_duration"}},
		"rather far": {func(f *Facts) { f.Election.RoundTrip = 500 * time.Millisecond }, "lease", Warn, []string{"slow moments"}},
		"impatient server": {
			func(f *Facts) { f.Election.GivesUp = 2 * time.Second },
			"lease", Fail,
			[]string{"after 2s", "lease of 3s", "tcp_keepalive_time"},
		},
		"another lease": {
			func(f *Facts) { f.Cluster.Leaders[0].LeaseUntil = now.Add(time.Minute) },
			"lease", Warn,
			[]string{"web-1 leads scheduler with a lease of 1m0s", "this file says 3s"},
		},
		"this machine's clock": {
			func(f *Facts) { f.Election.ClockAhead = -2 * time.Second },
			"clock", Warn,
			[]string{"this machine", "2s behind", "NTP"},
		},
		"clock beyond the lease": {
			func(f *Facts) { f.Election.ClockAhead = time.Hour },
			"clock", Fail,
			[]string{"1h0m0s ahead of", "lease_until"},
		},
		"a clock that cannot be told": {
			func(f *Facts) { f.Election.ClockAhead, f.Election.ClockError = 1500*time.Millisecond, time.Second },
			"clock", OK, nil,
		},
		"a node's clock": {
			func(f *Facts) { f.Cluster.Hazards.Clocks[0].Ahead = -90 * time.Second },
			"clock", Fail,
			[]string{"node web-1", "1m30s behind"},
		},
		"in the clear": {func(f *Facts) { f.Election.TLS = false }, "tls", Warn, []string{"10.0.0.5 in the clear", "sslmode"}},
		"the database's clock set back": {
			func(f *Facts) { f.Cluster.Hazards.Clock.SetBack = time.Hour },
			"clock", Warn,
			[]string{"was set back by 1h0m0s or more", "NTP"},
		},
	})
}
