package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	incarnation = "00000000000000aa"
	hash        = "0123456789abcdef"
)

// healthy returns the facts of a cluster of two nodes without problems.
func healthy() Facts {
	cfg := config.Default()
	cfg.Database.URL = "postgres://db.example/forge"
	cfg.Database.LeaderURL = cfg.Database.URL
	cfg.Jobs = map[string]config.Job{"tidy": {}}
	node := func(id, incarnation string) nodestore.Node {
		return nodestore.Node{
			NodeID: id, Incarnation: incarnation, State: nodestore.Active, Hostname: "host-" + id, Version: "v1",
			Roles: []string{"scheduler", "metrics_aggregator", "log_compactor"}, ConfigHash: hash, LastHeartbeatAt: now.Add(-time.Second), StartedAt: now.Add(-time.Hour), Now: now,
		}
	}
	link := Link{Key: leaderURL, Remote: "10.0.0.5", TLS: true, RoundTrip: time.Millisecond, IdleEnded: true}
	return Facts{
		Config: cfg, Pool: link, Election: link,
		Server: &Server{
			VersionNum: 150018, Version: "15.18", Encoding: "UTF8", User: "forge", MaxConnections: 100,
			Connections: 12, Autovacuum: true, Fsync: true, DatabaseBytes: 9 << 20,
		},
		Schema: &Schema{Name: "public", Owner: "forge", Owned: true},
		Cluster: &Cluster{
			Nodes: []nodestore.Node{node("web-1", incarnation), node("web-2", "00000000000000bb")},
			Leaders: []leaderstore.Leader{{
				Role: "scheduler", NodeID: "web-1", Incarnation: incarnation, Term: 7,
				RenewedAt: now, LeaseUntil: now.Add(3 * time.Second), Now: now,
			}, {
				Role: "metrics_aggregator", NodeID: "web-1", Incarnation: incarnation, Term: 2,
				RenewedAt: now, LeaseUntil: now.Add(3 * time.Second), Now: now,
			}, {
				Role: "log_compactor", NodeID: "web-1", Incarnation: incarnation, Term: 2,
				RenewedAt: now, LeaseUntil: now.Add(3 * time.Second), Now: now,
			}},
			Holders: []leaderstore.LockHolder{{Role: "scheduler", LockID: 42, PID: 9, Application: "forge:" + incarnation + ":web-1"}},
			Hazards: hazards.Facts{
				Clock:  postgres.Clock{Now: now},
				Clocks: []aggregator.Clock{{NodeID: "web-1", Ahead: 3 * time.Millisecond}},
				Queues: []jobstore.Queue{{Name: "default", Now: now, OldestAt: now.Add(-time.Minute), WaitSeconds: 60}},
			},
			Passes: []compactor.Pass{{
				NodeID: "web-2", EndedAt: now.Add(-2 * time.Minute), NextAt: now.Add(3 * time.Minute),
				Removed: map[string]int64{"events": 12, "logs": 3000}, Chunks: 9, TextBytes: 3 << 20, PackBytes: 1 << 19,
			}},
			InForce: hash, OwnHash: hash,
		},
	}
}

// reverted is the hash of an earlier configuration.
const reverted = "fedcba9876543210"

// revert has all nodes run an earlier configuration.
func (f *Facts) revert() {
	for i := range f.Cluster.Nodes {
		f.Cluster.Nodes[i].ConfigHash = reverted
	}
	f.Cluster.Drifts = map[string]config.Diff{reverted: {"crons": {Changed: []config.ItemChange{{Name: "a"}}}}}
}

func TestHealthyClusterHasNoFindings(t *testing.T) {
	t.Parallel()
	for _, f := range Examine(healthy()) {
		if f.Status != OK || f.Remedy != "" || f.Detail == "" {
			t.Errorf("%+v", f)
		}
	}
}

// checkCase breaks one thing and requires the line that names it and its remedy.
type checkCase struct {
	spoil  func(f *Facts)
	check  string
	status Status
	says   []string
}

func testChecks(t *testing.T, cases map[string]checkCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := healthy()
			test.spoil(&facts)
			demand(t, Examine(facts), test.check, test.status, test.says...)
		})
	}
}

// TestChecksOfWork covers the work of the cluster.
func TestChecksOfWork(t *testing.T) {
	t.Parallel()
	testChecks(t, map[string]checkCase{
		"a pass": {
			func(*Facts) {}, "compaction", OK,
			[]string{"2m0s ago by web-2: 3,012 rows removed, output merged from 3.0 MiB to 512 KiB; the next is due in 3m0s"},
		},
		"a pass that is due": {func(f *Facts) { f.Cluster.Passes[0].NextAt = now.Add(-9 * time.Minute) }, "compaction", OK, []string{"due now"}},
		"no pass for long": {
			func(f *Facts) { f.Cluster.Passes[0].NextAt = now.Add(-11 * time.Minute) },
			"compaction", Warn,
			[]string{"the next was due 11m0s ago", "forge leader status"},
		},
		"no pass while nobody ran": {func(f *Facts) {
			f.Cluster.Passes[0].NextAt = now.Add(-time.Hour)
			f.Cluster.Nodes[0].StartedAt, f.Cluster.Nodes[1].StartedAt = now.Add(-time.Minute), now.Add(-time.Minute)
		}, "compaction", OK, []string{"due now"}},
		"no pass ever": {func(f *Facts) { f.Cluster.Passes = nil }, "compaction", Warn, []string{"forge leader status"}},
		"no pass yet": {func(f *Facts) {
			f.Cluster.Passes = nil
			f.Cluster.Nodes[0].StartedAt, f.Cluster.Nodes[1].StartedAt = now.Add(-time.Minute), now.Add(-time.Minute)
		}, "compaction", OK, []string{"no pass yet; the nodes started 1m0s ago"}},
		"a pass that could not do all": {
			func(f *Facts) {
				f.Cluster.Passes[0].Failed = map[string]string{"merge": "a pack of attempt 1 of job 7 cannot be read: damaged", "nodes": "x"}
			},
			"compaction", Warn,
			[]string{"merge, nodes (a pack of attempt 1 of job 7", "forge compact status"},
		},
		"a queue paused for days": {
			func(f *Facts) { f.Cluster.Hazards.Queues[0].PausedAt = now.Add(-73 * time.Hour) },
			"queues", Warn,
			[]string{"queue default is paused for 73h0m0s", "its oldest job has waited for 1m0s", "forge queue resume default"},
		},
		"a job that waits": {
			func(f *Facts) { f.Cluster.Hazards.Queues[0].WaitSeconds = 7200 },
			"queues", Warn,
			[]string{"the oldest available job of queue default has waited for 2h0m0s", "forge job explain"},
		},
		"the oldest job": {func(*Facts) {}, "queues", OK, []string{"the oldest available job has waited for 1m0s"}},
		"an old snapshot": {func(f *Facts) {
			f.Cluster.Hazards.Snapshots = []postgres.Snapshot{{Holder: postgres.Session, Name: "bob, psql", PID: 42, Transactions: 10, Age: 2 * time.Hour}}
		}, "snapshots", Warn, []string{"process 42 (bob, psql) is open for 2h0m0s", "pg_terminate_backend(42)"}},
		"step-downs": {func(f *Facts) {
			for i := range 5 {
				f.Cluster.Hazards.Tenures = append(f.Cluster.Hazards.Tenures,
					leaderstore.Tenure{Role: "log_compactor", EndReason: "stepped_down", EndedAt: now.Add(-time.Duration(i) * time.Minute)})
			}
		}, "failovers", Warn, []string{"log_compactor lost its leader 5 times within an hour (5 stepped down)", "forge leader history --role log_compactor"}},
	})
}

// demand requires a line of the check with the status that contains all of the texts.
func demand(t *testing.T, findings []Finding, check string, status Status, says ...string) {
	t.Helper()
	for _, f := range findings {
		if f.Check == check && f.Status == status && containsAll(f.Detail+" "+f.Remedy, says) {
			if status != OK && f.Remedy == "" {
				t.Errorf("no remedy: %+v", f)
			}
			return
		}
	}
	t.Errorf("no line of %q is %s and says %q", check, status, says)
	for _, f := range findings {
		if f.Check == check || f.Check == "connection" {
			t.Logf("there is %+v", f)
		}
	}
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func TestChecksSkipUnknownFacts(t *testing.T) {
	t.Parallel()
	gone := errors.New("connection refused")
	findings := Examine(Facts{Config: config.Default(), Pool: Link{Key: poolURL, Err: gone}, Election: Link{Key: leaderURL, Err: gone}})
	for _, f := range findings {
		if f.Check != "configuration" && f.Check != "connection" && f.Check != "lease" {
			t.Errorf("%+v", f)
		}
	}
	demand(t, findings, "connection", Fail, "connection refused")
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	_, report, err := config.Parse("forge.toml", []byte("[cluster.leader_election]\nlease_duration = \"1s\"\nrefresh_interval = \"2s\"\n"), config.LoadOptions{})
	if err == nil {
		t.Fatal("a lease that runs out before it is refreshed was accepted")
	}
	demand(t, Invalid(report), "configuration", Fail, "forge.toml:", "lease runs out", "want refresh_interval")
}

func TestWarningsOfReceivers(t *testing.T) {
	t.Parallel()
	_, report, err := config.Parse("forge.toml", []byte(`[notify.webhook]
url = "https://hooks.example.com/"
http_config = { tls_config = { insecure_skip_verify = true }, authorization = { credentials = "c4nary" } }
`), config.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	facts := healthy()
	facts.Warnings = report.Warnings()
	findings := Examine(facts)
	demand(t, findings, "configuration", Warn, "forge.toml:3:55:", "insecure_skip_verify", "certificate is not verified", "want ca_file")
	demand(t, findings, "configuration", Warn, "credentials: a secret in the file", "want ${env:NAME}")
	if text := fmt.Sprint(findings); strings.Contains(text, "c4nary") {
		t.Errorf("the secret is shown: %s", text)
	}
}
