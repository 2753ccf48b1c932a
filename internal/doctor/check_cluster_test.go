package doctor

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// TestChecksOfCluster covers nodes and roles.
func TestChecksOfCluster(t *testing.T) {
	t.Parallel()
	testChecks(t, map[string]checkCase{
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
		"drift of a file that was in force": {
			func(f *Facts) { f.revert(); f.Cluster.Nodes[0].ConfigHash = f.Cluster.InForce },
			"drift", Warn,
			[]string{"web-2 runs configuration fedcba987654, which differs by crons ~a; in force is 0123456789ab"},
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
	})
}
