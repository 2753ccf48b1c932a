package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"

	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/migrations"
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

// Each case breaks one thing and requires the line that names it and its remedy.
func TestChecks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil  func(f *Facts)
		check  string
		status Status
		says   []string
	}{
		"warnings of the file": {func(f *Facts) {
			f.Warnings = []config.Problem{{File: "forge.toml", Line: 3, Col: 1, Key: "alerts", Message: "not evaluated", Want: "rules", Warning: true}}
		}, "configuration", Warn, []string{"forge.toml:3:1: alerts: not evaluated", "want rules"}},
		"unreachable": {
			func(f *Facts) { f.Election.Err = errors.New("connection refused") },
			"connection", Fail,
			[]string{"connection refused", "check database.leader_url"},
		},
		"not all read": {func(f *Facts) { f.Err = errors.New("list nodes: boom") }, "connection", Fail, []string{"boom"}},
		"pooler in transaction mode": {
			func(f *Facts) { f.Election.Pooled, f.Election.Shared = true, true },
			"pooler", Fail,
			[]string{"database.leader_url", "transaction mode", `strategy = "lease"`},
		},
		"pooler in transaction mode, by lease": {func(f *Facts) {
			f.Election.Pooled, f.Election.Shared = true, true
			f.Config.Cluster.LeaderElection.Strategy = "lease"
		}, "pooler", OK, []string{"transaction mode"}},
		"another's tables": {func(f *Facts) {
			f.Schema.Owned, f.Schema.Owner, f.Schema.Tables = false, "dba", []compactor.Table{{Name: "forge_cron_ticks", Partitions: 9}}
		}, "storage", OK, []string{"forge_cron_ticks in 9 partitions", "rows deleted one by one: the tables belong to dba"}},
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
		"too old": {
			func(f *Facts) { f.Server.VersionNum, f.Server.Version = 130012, "13.12" },
			"server version", Fail,
			[]string{"13.12", "14 or newer"},
		},
		"too new": {
			func(f *Facts) { f.Server.VersionNum, f.Server.Version = 190000, "19.0" },
			"server version", Warn,
			[]string{"19.0", "newer than any"},
		},
		"silent sessions are kept": {
			func(f *Facts) { f.Election.IdleEnded = false },
			"idle_session_timeout", Fail,
			[]string{"a leader that hangs would keep its lock"},
		},
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
		"nothing migrated": {func(f *Facts) { f.Schema.Empty = true }, "schema", Warn, []string{"no tables", "forge migrate up"}},
		"pending":          {func(f *Facts) { f.Schema.Version = migrations.ErrPending }, "schema", Warn, []string{"older than this binary"}},
		"pending, another's": {
			func(f *Facts) { f.Schema.Version, f.Schema.Owned, f.Schema.Owner = migrations.ErrPending, false, "dba" },
			"schema", Fail,
			[]string{"as dba"},
		},
		"old schema":   {func(f *Facts) { f.Schema.Version = migrations.ErrTooOld }, "schema", Fail, []string{"too old for this binary", "earlier build"}},
		"newer schema": {func(f *Facts) { f.Schema.Version = migrations.ErrNewerSchema }, "schema", Fail, []string{"or a newer one"}},
		"missing grants": {func(f *Facts) {
			f.Schema.Missing = []Grant{
				{Privilege: "INSERT", Kind: "TABLE", Object: "public.forge_a"},
				{Privilege: "UPDATE", Kind: "TABLE", Object: "public.forge_a"},
				{Privilege: "INSERT", Kind: "TABLE", Object: "public.forge_b"},
				{Privilege: "UPDATE", Kind: "TABLE", Object: "public.forge_b"},
			}
		}, "grants", Fail, []string{
			"forge lacks INSERT, UPDATE on public.forge_a, public.forge_b",
			`GRANT INSERT, UPDATE ON TABLE public.forge_a, public.forge_b TO "forge";`,
		}},
		"nodes of another user": {
			func(f *Facts) { f.Server.ForeignUsers = []string{"other"} },
			"grants", Warn,
			[]string{"other", `GRANT pg_signal_backend TO "forge";`},
		},
		"a database that everybody may connect to": {
			func(f *Facts) { f.Server.PublicConnect = true },
			"logins", Warn,
			[]string{"any login", "keep the role without a leader", "REVOKE CONNECT ON DATABASE"},
		},
		"another login that may connect": {
			func(f *Facts) { f.Server.OtherLogins = []string{"billing", "reports"} },
			"logins", Warn,
			[]string{"billing, reports", "REVOKE CONNECT"},
		},
		"logins with the lease strategy": {
			func(f *Facts) {
				f.Server.PublicConnect, f.Config.Cluster.LeaderElection.Strategy = true, "lease"
			},
			"logins", OK, nil,
		},
		"lock of another application": {func(f *Facts) {
			f.Cluster.Holders[0] = leaderstore.LockHolder{Role: "scheduler", LockID: 42, PID: 4711, Application: "billing", User: "app", Client: "10.1.2.3"}
		}, "lock ids", Fail, []string{"scheduler (42)", "process 4711", `"billing"`, "user app", "10.1.2.3", "cluster.lock_namespace"}},
		"lock of another cluster": {
			func(f *Facts) { f.Cluster.Holders[0].Application = "forge:ffffffffffffffff:web-1" },
			"lock ids", Fail,
			[]string{"another forge cluster", "cluster.lock_namespace"},
		},
		"no leader": {
			func(f *Facts) { f.Cluster.Leaders[0].LeaseUntil = now.Add(-time.Second) },
			"leaders", Fail,
			[]string{"nobody leads scheduler", "web-1, web-2"},
		},
		"nobody stands": {
			func(f *Facts) {
				f.Cluster.Leaders[2] = leaderstore.Leader{Role: "log_compactor", Now: now}
				for i := range f.Cluster.Nodes {
					f.Cluster.Nodes[i].Roles = []string{"scheduler", "metrics_aggregator"}
				}
			},
			"leaders", Fail,
			[]string{"no running node has it in node.roles", "nobody leads log_compactor"},
		},
		"no successor": {
			func(f *Facts) { f.Cluster.Nodes = f.Cluster.Nodes[:1] },
			"leaders", Warn,
			[]string{"no other node could take over", "second node"},
		},
		"a singleton that nobody runs": {
			func(f *Facts) { f.Cluster.Leaders[0] = leaderstore.Leader{Role: "mailer", Now: now} },
			"leaders", OK,
			[]string{"nobody leads mailer, and no node has it in node.roles"},
		},
		"a singleton that is run": {func(f *Facts) {
			f.Cluster.Leaders[0].Role, f.Cluster.Leaders[0].Incarnation = "mailer", "00000000000000cc"
			f.Cluster.Holders[0] = leaderstore.LockHolder{Role: "mailer", LockID: 1, PID: 3, Application: "forge:00000000000000cc:web-1"}
		}, "lock ids", OK, nil},
		"no node": {func(f *Facts) { f.Cluster.Nodes = nil }, "leaders", Fail, []string{"no node is running"}},
		"silent nodes alone": {
			func(f *Facts) {
				for i := range f.Cluster.Nodes {
					f.Cluster.Nodes[i].LastHeartbeatAt = now.Add(-time.Hour)
				}
			},
			"leaders", Fail,
			[]string{"no node is running"},
		},
		"nodes that are dead or have left alone": {
			func(f *Facts) {
				f.Cluster.Nodes[0].State, f.Cluster.Nodes[1].State = nodestore.Dead, nodestore.Left
			},
			"leaders", Fail,
			[]string{"no node is running"},
		},
		"no node yet": {
			func(f *Facts) { f.Cluster.Nodes, f.Cluster.Leaders = nil, nil },
			"leaders", Warn,
			[]string{"no node has joined yet"},
		},
		"a role without a row": {
			func(f *Facts) { f.Cluster.Leaders = f.Cluster.Leaders[1:] },
			"leaders", Fail,
			[]string{"nobody leads scheduler", "forge_leaders has no row"},
		},
		"a custom role without a row": {
			func(f *Facts) { f.Cluster.Nodes[0].Roles = append(f.Cluster.Nodes[0].Roles, "billing") },
			"leaders", Fail,
			[]string{"nobody leads billing", "forge_leaders has no row"},
		},
		"dead node": {
			func(f *Facts) { f.Cluster.Nodes[1].State = nodestore.Dead },
			"nodes", Warn,
			[]string{"web-2 on host host-web-2 is dead"},
		},
		"silent node": {
			func(f *Facts) { f.Cluster.Nodes[1].LastHeartbeatAt = now.Add(-time.Minute) },
			"nodes", Warn,
			[]string{"web-2", "silent for 1m0s"},
		},
		"drift": {
			func(f *Facts) { f.Cluster.Nodes[1].ConfigHash = "fedcba9876543210" },
			"drift", Warn,
			[]string{"web-2 runs configuration fedcba987654", "in force is 0123456789ab"},
		},
		"all nodes run an earlier file": {
			func(f *Facts) { f.revert() }, "drift", Warn,
			[]string{"all 2 active nodes run the earlier configuration fedcba987654, which differs by crons ~a; in force is 0123456789ab", "forge apply with that file puts it in force again"},
		},
		"all nodes run this earlier file": {
			func(f *Facts) { f.revert(); f.Cluster.OwnHash = reverted }, "drift", Warn,
			[]string{"all 2 active nodes run the earlier configuration", "forge plan shows the difference, forge apply puts this file in force again; if it is the wrong file"},
		},
		"the only node runs an earlier file": {
			func(f *Facts) { f.revert(); f.Cluster.Nodes[1].State = "left" }, "drift", Warn,
			[]string{"the active node runs the earlier configuration fedcba987654"},
		},
		"all nodes run a file that was never in force": {
			func(f *Facts) { f.revert(); f.Cluster.Drifts = nil }, "drift", Warn,
			[]string{"web-1 runs configuration fedcba987654", "give it the file that is in force"},
		},
		"this file": {func(f *Facts) { f.Cluster.OwnHash = "" }, "drift", Warn, []string{"this file", "forge apply"}},
		"this file would remove crons": {
			func(f *Facts) { f.Cluster.OwnHash, f.Cluster.OwnHeld = "", "it would remove 5 of 5 crons (a)" },
			"drift", Warn,
			[]string{"this file waits for forge apply --yes: it would remove 5 of 5 crons (a)", "forge apply --yes puts"},
		},
		"this file is of a node alone": {
			func(f *Facts) { f.Cluster.OwnHash, f.Config.Jobs = "", nil }, "drift", OK, []string{"this file has no crons"},
		},
		"a node's file would remove crons": {
			func(f *Facts) { f.Cluster.Nodes[1].ConfigWaiting = "it would remove 5 of 5 crons (a)" }, "drift", Warn,
			[]string{"the file of web-2 waits for forge apply --yes: it would remove 5 of 5 crons (a)"},
		},
		"a node without crons of its own": {func(f *Facts) { f.Cluster.Nodes[1].ConfigHash = "" }, "drift", OK, nil},
		"two versions":                    {func(f *Facts) { f.Cluster.Nodes[1].Version = "v2" }, "drift", Warn, []string{"2 versions"}},
		"two time zone databases": {
			func(f *Facts) { f.Cluster.Nodes[0].TZData, f.Cluster.Nodes[1].TZData = "2025b", "2025c" },
			"drift", Warn,
			[]string{"different releases of the time zone database (2025b, 2025c)", "one version of forge"},
		},
		"in the clear":        {func(f *Facts) { f.Election.TLS = false }, "tls", Warn, []string{"10.0.0.5 in the clear", "sslmode"}},
		"asynchronous":        {func(f *Facts) { f.Server.Replicas = 2 }, "replication", Warn, []string{"2 replicas", "synchronous_standby_names"}},
		"synchronous":         {func(f *Facts) { f.Server.Replicas, f.Server.SynchronousWith = 2, "*" }, "replication", OK, []string{"synchronous with *"}},
		"connections used up": {func(f *Facts) { f.Server.Connections = 95 }, "connections", Warn, []string{"95 of 100", "max_connections"}},
		"connections too few": {func(f *Facts) { f.Config.Database.PoolSize = 60 }, "connections", Warn, []string{"want 128", "the server has 100"}},
		"encoding":            {func(f *Facts) { f.Server.Encoding = "SQL_ASCII" }, "encoding", Fail, []string{"SQL_ASCII", "UTF8"}},
		"no fsync":            {func(f *Facts) { f.Server.Fsync = false }, "storage", Warn, []string{"power cut"}},
		"no autovacuum":       {func(f *Facts) { f.Server.Autovacuum = false }, "storage", Warn, []string{"autovacuum = on"}},
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
		"the database's clock set back": {
			func(f *Facts) { f.Cluster.Hazards.Clock.SetBack = time.Hour },
			"clock", Warn,
			[]string{"was set back by 1h0m0s or more", "NTP"},
		},
		"a full disk": {
			func(f *Facts) {
				f.Writes = &postgres.DiskError{Err: &pgconn.PgError{Message: "No space left on device"}}
			},
			"writes", Fail,
			[]string{"No space left on device", "make room"},
		},
		"a read-only database": {func(f *Facts) { f.Writes = postgres.ErrWritesRejected }, "writes", Fail, []string{"read-only", "default_transaction_read_only"}},
		"dead rows": {
			func(f *Facts) {
				f.Schema.Tables = []compactor.Table{{Name: "river_job", Rows: 10, DeadRows: 1_000_000}}
			},
			"storage", Warn,
			[]string{"river_job has 1,000,000 dead rows"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := healthy()
			test.spoil(&facts)
			demand(t, Examine(facts), test.check, test.status, test.says...)
		})
	}
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
