package assign

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// waitingFacts returns an available job of kind k in queue q, with three nodes of ten
// slots each and a leader.
func waitingFacts(change ...func(*facts)) facts {
	f := facts{
		job:          jobstore.Job{ID: 7, Kind: "k", Queue: "q", State: "available", MaxAttempts: 5, ScheduledAt: noon.Add(-time.Second)},
		requirements: job{kind: "k", queue: "q"},
		now:          noon,
		leader:       "a",
		running: map[string][]jobCount{
			nodestore.ClientID("b", "inc-b"): {{"q", "k", 2}}, nodestore.ClientID("c", "inc-c"): {{"q", "l", 3}, {"other", "k", 1}},
		},
	}
	for _, id := range []string{"a", "b", "c"} {
		n := node(id, 10)
		n.State, n.Incarnation, n.Capabilities, n.Now, n.LastHeartbeatAt = nodestore.Active, "inc-"+id, []string{"general"}, noon, noon.Add(-12*time.Second)
		f.nodes = append(f.nodes, n)
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

var deviceLimit = fullLimit{
	Limit: jobstore.Limit{Scope: jobstore.ScopeQueue, Name: "q", Most: 1, Key: "args.device", PerNode: true}, value: "x", used: 1, holders: []int64{3},
}

func onAll(change func(*nodestore.Node)) func(*facts) {
	return func(f *facts) {
		for i := range f.nodes {
			change(&f.nodes[i])
		}
	}
}

func on(id string, change func(*nodestore.Node)) func(*facts) {
	return onAll(func(n *nodestore.Node) {
		if n.NodeID == id {
			change(n)
		}
	})
}

func state(state string) func(*nodestore.Node) {
	return func(n *nodestore.Node) { n.State = state }
}

func TestExplainWaiting(t *testing.T) {
	t.Parallel()
	gpu := func(f *facts) { f.requirements.capability = "gpu" }
	hasGPU := func(n *nodestore.Node) { n.Capabilities = []string{"general", "gpu"} }
	for _, test := range []struct {
		name   string
		facts  facts
		chosen string
		want   string
	}{
		{"the least loaded", waitingFacts(), "a", "it goes to a, the least loaded of 3 nodes that can take it: 0 of 10 slots in use."},
		{"equals", waitingFacts(func(f *facts) { f.running = nil }), "a b c", "it goes to a or b or c, equally loaded: 0 of 10 slots in use."},
		{"not the one that drains", waitingFacts(on("a", state(nodestore.Draining))), "b", "it goes to b, the least loaded of 2 nodes that can take it: 2 of 10 slots in use."},
		{"no leader", waitingFacts(func(f *facts) { f.leader = "" }), "a", "nobody leads the scheduler, so it is offered to no node; it would go to a, the least loaded of 3 nodes that can take it: 0 of 10 slots in use."},
		{"paused", waitingFacts(func(f *facts) { f.pausedAt = noon }), "a", "queue q is paused since 2026-11-20T12:00:00Z; forge queue resume q lets it go on."},
		{"limit", waitingFacts(func(f *facts) {
			f.full = fullLimit{Limit: jobstore.Limit{Scope: jobstore.ScopeJob, Name: "k", Most: 2}, used: 2, holders: []int64{3, 4}}
		}), "a", "kind k is at its global_limit of 2 running jobs in the cluster: jobs 3 and 4 run."},
		{"capability", waitingFacts(gpu), "", "no node has capability gpu; nodes have general."},
		{"capability of one", waitingFacts(gpu, on("c", hasGPU)), "c", "it goes to c, the only node that can take it."},
		{"capability of one that drains", waitingFacts(gpu, on("c", hasGPU), on("c", state(nodestore.Draining))), "", "none of 3 nodes can take it: a lacks capability gpu; b lacks capability gpu; c is draining."},
		{"capability of a dead one", waitingFacts(gpu, on("c", hasGPU), on("c", state(nodestore.Dead))), "", "no node has capability gpu; nodes have general."},
		{"no capabilities at all", waitingFacts(gpu, onAll(func(n *nodestore.Node) { n.Capabilities = nil })), "", "no node has capability gpu; nodes have none."},
		{"kind", waitingFacts(func(f *facts) { f.job.Kind, f.requirements.kind = "mail", "mail" }), "", "no node has a worker for kind mail."},
		{"definition", waitingFacts(func(f *facts) { f.inForce.digests = map[string]string{"k": "another"} }), "", "no node defines k as the configuration in force does."},
		{"queue", waitingFacts(func(f *facts) { f.job.Queue, f.requirements.queue = "slow", "slow" }), "", "no node works queue slow."},
		{"tags", waitingFacts(func(f *facts) { f.requirements.tags = map[string]string{"zone": "eu", "disk": "ssd"} }), "", "no node has the tags disk=ssd, zone=eu."},
		{
			"tags that differ", waitingFacts(func(f *facts) { f.requirements.tags = map[string]string{"zone": "eu"} },
				on("a", func(n *nodestore.Node) { n.Tags = map[string]string{"zone": "us"} }), on("b", state(nodestore.Draining)), on("b", func(n *nodestore.Node) { n.Tags = map[string]string{"zone": "eu"} })),
			"", "none of 3 nodes can take it: a has tag zone=us, not eu; b is draining; c lacks tag zone=eu.",
		},
		{"unreadable tags", waitingFacts(func(f *facts) { f.requirements.unreadable = true }), "", "its tags cannot be read: want an object of strings."},
		{"draining", waitingFacts(onAll(state(nodestore.Draining))), "", "every node is draining."},
		{"dead", waitingFacts(onAll(state(nodestore.Dead))), "", "no node is alive."},
		{"left", waitingFacts(onAll(state(nodestore.Left))), "", "no node is alive."},
		{"fenced", waitingFacts(onAll(func(n *nodestore.Node) { n.FencedAt = noon })), "", "no node is alive."},
		{"full", waitingFacts(onAll(func(n *nodestore.Node) { n.Slots = 4 }), func(f *facts) {
			f.running[nodestore.ClientID("a", "inc-a")] = []jobCount{{"other", "l", 4}}
			f.running[nodestore.ClientID("b", "inc-b")] = []jobCount{{"q", "k", 5}}
		}), "", "no node has a free slot: a has 4 of 4 slots in use; b has 5 of 4 slots in use; c has 4 of 4 slots in use."},
		{"slow starts", waitingFacts(func(f *facts) {
			f.slowStarts = map[string]nodestore.Starts{"a": {Waiting: 12, Took: 3200 * time.Millisecond}}
		}), "b", "it goes to b, the least loaded of 2 nodes that can take it: 2 of 10 slots in use."},
		{"slow starts everywhere", waitingFacts(func(f *facts) {
			slow := nodestore.Starts{Waiting: 12, Took: 3200 * time.Millisecond}
			f.slowStarts = map[string]nodestore.Starts{"a": slow, "b": {Waiting: 1, Took: time.Second}, "c": slow}
		}), "", "no node takes more jobs now: a starts commands slowly (12 wait to be started, a start takes 3.2s); b starts commands slowly (1 wait to be started, a start takes 1s); c starts commands slowly (12 wait to be started, a start takes 3.2s)."},
		{"full queue", waitingFacts(onAll(func(n *nodestore.Node) { n.Queues = map[string]int{"q": 2} }), func(f *facts) {
			f.running[nodestore.ClientID("a", "inc-a")] = []jobCount{{"q", "l", 2}}
		}), "", "no node has a free slot: a has 2 of 2 places of queue q in use; b has 2 of 2 places of queue q in use; c has 3 of 2 places of queue q in use."},
		{"reserved slots", waitingFacts(onAll(func(n *nodestore.Node) { n.Slots, n.Reserved = 3, map[string]int{"other": 2} }), func(f *facts) {
			f.running[nodestore.ClientID("a", "inc-a")] = []jobCount{{"q", "k", 1}}
		}), "", "no node has a free slot: a has 1 of 3 slots in use and reserves the others for other queues; b has 2 of 3 slots in use and reserves the others for other queues; c has 4 of 3 slots in use."},
		{"limit on some nodes", waitingFacts(func(f *facts) {
			f.fullOn = map[string]fullLimit{nodestore.ClientID("a", "inc-a"): deviceLimit}
		}), "b", "it goes to b, the least loaded of 2 nodes that can take it: 2 of 10 slots in use."},
		{"limit on all nodes", waitingFacts(func(f *facts) {
			f.fullOn = map[string]fullLimit{}
			for _, n := range f.nodes {
				f.fullOn[nodestore.ClientID(n.NodeID, n.Incarnation)] = deviceLimit
			}
			f.nodes = f.nodes[:2]
		}), "", `no node may run more such jobs at once: ` +
			`a is at its max_workers_per_key of 1 running jobs of queue q with args.device = "x": job 3 runs; ` +
			`b is at its max_workers_per_key of 1 running jobs of queue q with args.device = "x": job 3 runs.`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := test.facts.explain(LeastLoaded)
			var chosen []string
			for _, c := range p.Candidates {
				if c.Chosen {
					chosen = append(chosen, c.NodeID)
				}
			}
			got, _ := strings.CutPrefix(p.Sentence, "Job 7 ("+p.Kind+") waits: ")
			if got != test.want || strings.Join(chosen, " ") != test.chosen {
				t.Errorf("chosen %q\ngot  %s\nwant %s", chosen, p.Sentence, test.want)
			}
		})
	}
}

func TestExplainByStrategy(t *testing.T) {
	t.Parallel()
	noneOnA := on("a", state(nodestore.Draining))
	for _, test := range []struct {
		strategy string
		facts    facts
		want     string
	}{
		{RoundRobin, waitingFacts(), "it goes to a or b or c, which take turns."},
		{Spread, waitingFacts(), "it goes to a, with the fewest jobs of kind k of 3 nodes that can take it: 0."},
		{Spread, waitingFacts(noneOnA), "it goes to c, with the fewest jobs of kind k of 2 nodes that can take it: 1."},
		{Spread, waitingFacts(func(f *facts) { f.requirements.kind, f.job.Kind = "m", "m" }, onAll(func(n *nodestore.Node) { n.Kinds = []string{"m"} })), "it goes to a, with the fewest jobs of kind m of 3 nodes that can take it: 0."},
		{Spread, waitingFacts(func(f *facts) { f.running = nil }), "it goes to a or b or c, with the fewest jobs of kind k of 3 nodes that can take it: 0."},
	} {
		if p := test.facts.explain(test.strategy); !strings.HasSuffix(p.Sentence, test.want) {
			t.Errorf("%s: %s, want %s", test.strategy, p.Sentence, test.want)
		}
	}
}

func TestExplainByState(t *testing.T) {
	t.Parallel()
	ran := jobstore.Attempt{Attempt: 1, NodeID: "b", Outcome: jobstore.OutcomeFailed}
	for _, test := range []struct {
		change func(*facts)
		want   string
	}{
		{
			func(f *facts) {
				f.job.State, f.job.Attempt, f.job.NodeID, f.job.AttemptedAt = "running", 2, "c", noon
				f.job.Attempts = []jobstore.Attempt{ran}
			},
			"Job 7 (k) runs on c since 2026-11-20T12:00:00Z, attempt 2 of 5.",
		},
		{
			func(f *facts) { f.job.State, f.job.ScheduledAt = "scheduled", noon.Add(time.Hour) },
			"Job 7 (k) waits until 2026-11-20T13:00:00Z, in 1h0m0s; as things are, it goes to a, the least loaded of 3 nodes that can take it: 0 of 10 slots in use.",
		},
		{
			func(f *facts) {
				f.job.State, f.job.ScheduledAt, f.job.Attempts = "retryable", noon.Add(time.Minute), []jobstore.Attempt{ran}
				f.requirements.capability = "gpu"
			},
			"Job 7 (k) waits until 2026-11-20T12:01:00Z, in 1m0s, for its next attempt; attempt 1 of 5 ran on b and ended as failed; as things are, no node has capability gpu; nodes have general.",
		},
		{
			func(f *facts) { f.job.State, f.job.Attempts = "discarded", []jobstore.Attempt{ran} },
			"Job 7 (k) is discarded; attempt 1 of 5 ran on b and ended as failed.",
		},
		{
			func(f *facts) { f.job.State, f.job.Attempt, f.job.NodeID = "completed", 3, "b" },
			"Job 7 (k) is completed; attempt 3 of 5 ran on b.",
		},
		{func(f *facts) { f.job.State = "cancelled" }, "Job 7 (k) is cancelled; it never ran."},
		{func(f *facts) { f.job.State = "pending" }, "Job 7 (k) is pending: nothing runs it until it is made available."},
	} {
		f := waitingFacts(test.change)
		p := f.explain(LeastLoaded)
		if p.Sentence != test.want {
			t.Errorf("\ngot  %s\nwant %s", p.Sentence, test.want)
		}
		if ended := jobstore.Finished(f.job.State) || f.job.State == "running"; ended != (len(p.Candidates) == 0) {
			t.Errorf("%s: %d candidates", f.job.State, len(p.Candidates))
		}
		if f.job.State == "running" && (len(p.Attempts) != 2 || p.Attempts[1].NodeID != "c") {
			t.Errorf("attempts %+v", p.Attempts)
		}
	}
}

// Explain agrees with the leader: a node is rejected if and only if the leader would not
// pick it, and the chosen nodes include the one that the leader picks.
func TestExplainAgreesWithLeader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		strategy := rapid.SampledFrom([]string{LeastLoaded, RoundRobin, Spread}).Draw(t, "strategy")
		candidates := f.candidates(strategy)
		newTable := func(nodes ...nodestore.Node) *nodeTable {
			b := newNodeTable(1, strategy)
			b.inForce = f.inForce
			b.setNodes(nodes)
			for _, n := range nodes {
				credit := wire.Credit{Term: 1, Incarnation: n.Incarnation, Slots: n.Slots, Free: map[string]int{}}
				maps.Copy(credit.Free, n.Queues)
				for _, s := range f.running[n.ClientID()] {
					credit.Slots -= s.jobs
					credit.Free[s.queue] -= s.jobs
				}
				b.recordCredit(credit, noon)
			}
			for _, m := range b.members {
				m.runningByKind = countByKind(f.running[m.clientID])
			}
			return b
		}
		picked, _, _ := pick(f.requirements, newTable(f.nodes...).members, strategy, "", noLimit)
		found := picked == nil
		for i, n := range f.nodes {
			alone, _, _ := pick(f.requirements, newTable(n).members, strategy, "", noLimit)
			c := candidates[i]
			if (alone == nil) != (len(c.Rejected) > 0) || c.Chosen && (alone == nil || picked == nil) {
				t.Fatalf("alone the leader picks %v; explained as %+v", alone != nil, c)
			}
			found = found || c.Chosen && c.NodeID == picked.nodeID
		}
		if !found {
			t.Fatalf("the leader picks %s; explained as %+v", picked.nodeID, candidates)
		}
	})
}

// drawFacts returns random nodes. Each has everything that the job needs, except for a
// few random defects.
func drawFacts(t *rapid.T) facts {
	f := facts{
		job:          jobstore.Job{State: "available"},
		inForce:      definitions{digests: map[string]string{"k": "x"}},
		running:      map[string][]jobCount{},
		requirements: job{kind: "k", queue: "q", capability: "gpu", tags: map[string]string{"zone": "eu"}, unreadable: rapid.IntRange(0, 19).Draw(t, "unreadable") == 0},
	}
	for _, id := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "nodes")] {
		n := nodestore.Node{
			NodeID: id, Incarnation: "inc-" + id, State: nodestore.Active, Slots: rapid.IntRange(1, 4).Draw(t, "slots"),
			Kinds: []string{"k"}, Definitions: map[string]string{"k": "x"}, Capabilities: []string{"general", "gpu"},
			Tags: map[string]string{"zone": "eu"}, Queues: map[string]int{"q": rapid.IntRange(1, 3).Draw(t, "most"), "r": 3},
		}
		for i, spoil := range []func(){
			func() { n.State = nodestore.Draining }, func() { n.FencedAt = noon }, func() { n.Kinds = []string{"l"} },
			func() { n.Definitions = nil }, func() { n.Capabilities = n.Capabilities[:1] },
			func() { n.Tags["zone"] = "us" }, func() { delete(n.Queues, "q") },
		} {
			if rapid.IntRange(0, 5).Draw(t, fmt.Sprint("spoil ", i)) == 0 {
				spoil()
			}
		}
		f.running[n.ClientID()] = []jobCount{
			{"q", "k", rapid.IntRange(0, 1).Draw(t, "running")},
			{"q", "l", rapid.IntRange(0, 1).Draw(t, "others")},
			{"r", "k", rapid.IntRange(0, 1).Draw(t, "more")},
		}
		f.nodes = append(f.nodes, n)
	}
	return f
}

// Explain reads the database only, so no node has to be up.
func TestExplainReadsDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	says := func(want string) explain.Placement {
		t.Helper()
		p, err := NewExplainer(pool, Rules{Strategy: LeastLoaded}).Placement(t.Context(), 1)
		if err != nil || !strings.Contains(p.Sentence, want) {
			t.Fatalf("got %q, want %q in it: %v", p.Sentence, want, err)
		}
		return p
	}
	if _, err := NewExplainer(pool, Rules{}).Placement(t.Context(), 1); !errors.Is(err, jobstore.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
	exec(`INSERT INTO river_job (args, kind, queue, state, max_attempts, metadata)
		VALUES ('{}', 'k', 'q', 'available', 3, '{"forge:capability": "gpu", "forge:tags": {"zone": "eu"}}')`)
	says("no node is alive.")
	// The heartbeats and metrics count as fresh, however slow the test is.
	exec(`INSERT INTO forge_nodes (node_id, incarnation, state, slots, kinds, queues, capabilities, tags, last_heartbeat_at)
		VALUES ('a', '00000000000000aa', 'active', 5, '{k}', '{"q": 2}', '{general}', '{"zone": "eu"}', now() + interval '1 hour'),
		       ('b', '00000000000000bb', 'active', 5, '{k}', '{"q": 2}', '{gpu}', '{"zone": "eu"}', now() + interval '1 hour')`)
	says("nobody leads the scheduler, so it is offered to no node; it would go to b, the only node that can take it.")
	exec(`INSERT INTO forge_leaders (role, term, node_id, incarnation, lease_until) VALUES ('scheduler', 1, 'a', '00000000000000aa', now() + interval '1 hour')`)
	p := says("it goes to b, the only node")
	if p.Capability != "gpu" || p.Tags["zone"] != "eu" || p.Leader != "a" || len(p.Candidates) != 2 || p.Candidates[0].Rejected[0].Reason != explain.NoAbility {
		t.Errorf("%+v", p)
	}
	exec(`INSERT INTO river_job (args, kind, queue, state, max_attempts, attempted_by) SELECT '{}', 'k', 'q', 'running', 3, '{other-x,b-00000000000000bb}' FROM generate_series(1, 2)`)
	says("a lacks capability gpu; b has 2 of 2 places of queue q in use")
	exec(`DELETE FROM river_job WHERE id = 3`)
	exec(`INSERT INTO forge_metrics_nodes (node_id, incarnation, at, every, samples) VALUES ('b', '00000000000000bb', now() + interval '1 hour', '15 s',
		'{"samples": [{"n": "forge_command_starts_waiting", "v": 7}, {"n": "forge_command_start_seconds", "v": 2.5}, {"n": "other", "v": 9}]}')`)
	says("a lacks capability gpu; b starts commands slowly (7 wait to be started, a start takes 2.5s)")
	exec(`UPDATE forge_metrics_nodes SET incarnation = '00000000000000ff'`) // of an earlier process
	says("it goes to b, the only node")
	exec(`UPDATE forge_metrics_nodes SET incarnation = '00000000000000bb', at = now() - interval '1 minute'`) // too old
	says("it goes to b, the only node")
	exec(`UPDATE forge_metrics_nodes SET at = now() + interval '1 hour', samples = jsonb_set(samples, '{samples,1,v}', '0.2')`) // starts are fast
	says("it goes to b, the only node")
	exec(`INSERT INTO forge_limits (scope, name, most) VALUES ('queue', 'q', 2)`)
	says("it goes to b, the only node")
	exec(`UPDATE forge_limits SET most = 1`)
	if p := says("queue q is at its global_limit of 1 running jobs in the cluster: job 2 runs."); !slices.Equal(p.LimitHolders, []int64{2}) {
		t.Errorf("held by %v", p.LimitHolders)
	}
	exec(`UPDATE forge_limits SET scope = 'queue_key', key_source = 'args', key_path = '{tenant}'`)
	says("queue q is at its limit_per_key of 1 running jobs without args.tenant in the cluster: job 2 runs.")
	exec(`UPDATE river_job SET args = '{"tenant": "acme"}' WHERE id = 2`)
	says("it goes to b, the only node")
	exec(`UPDATE river_job SET args = '{"tenant": "acme"}'`)
	exec(`INSERT INTO river_job (args, kind, queue, state) SELECT '{"tenant": "acme"}', 'k', 'other', 'running' FROM generate_series(1, 12)`)
	says(`queue q is at its limit_per_key of 1 running jobs with args.tenant = "acme" in the cluster: job 2 runs.`)
	exec(`UPDATE forge_limits SET scope = 'job_key', name = 'k'`)
	says(`kind k is at its limit_per_key of 1 running jobs with args.tenant = "acme" in the cluster: jobs 2, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 3 more run.`)
	exec(`UPDATE forge_limits SET scope = 'job_rate', most = 5, per = '1 minute', burst = 4`)
	says("it goes to b, the only node")
	exec(`INSERT INTO forge_rate_windows (scope, name, key, starts, units, burst_starts, burst_units, idle_at)
		SELECT 'job_rate', 'k', 'acme', ARRAY[now() - interval '50 s', now()], '{2,3}', ARRAY[now()], '{3}', now() + interval '1 minute'`)
	p = says(`kind k is at its rate_limit of 5 in 1m0s and 4 at once with args.tenant = "acme"; the next start is possible at `)
	if wait := time.Until(p.LimitUntil); wait < 5*time.Second || wait > 10*time.Second || len(p.LimitHolders) != 0 {
		t.Errorf("the next start is possible in %s", wait)
	}
	exec(`UPDATE river_job SET metadata = metadata || '{"forge:weight": 2}' WHERE id = 1`)
	says("the next start of 2 units is possible at ")
	exec(`INSERT INTO forge_limits (scope, name, most) VALUES ('weight', 'k', 9)`)
	exec(`UPDATE river_job SET metadata = metadata - 'forge:weight' WHERE id = 1`)
	says(`it needs 9 units, which kind k never has within its rate_limit of 5 in 1m0s and 4 at once with args.tenant = "acme"; change its weight or the limit.`)
	exec(`DELETE FROM forge_limits`)
	exec(`INSERT INTO river_queue (name, paused_at, updated_at) VALUES ('q', now(), now())`)
	says("queue q is paused since")
	exec(`DELETE FROM river_queue`)
	exec(`UPDATE forge_nodes SET last_heartbeat_at = now() - interval '1 minute'`)
	if p := says("no node is alive."); !strings.HasPrefix(p.Candidates[1].Rejected[0].Detail, "is dead: nothing was heard from it for 1m") {
		t.Errorf("%+v", p.Candidates)
	}
}
