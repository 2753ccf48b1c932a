package assign

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/queuestore"
	"github.com/forge-scheduler/forge/internal/wire"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// waiting is an available job of kind k in queue q, on three nodes with ten slots
// each, which one leads.
func waiting(change ...func(*facts)) facts {
	f := facts{
		job:    jobstore.Job{ID: 7, Kind: "k", Queue: "q", State: "available", MaxAttempts: 5, ScheduledAt: noon.Add(-time.Second)},
		asks:   job{kind: "k", queue: "q"},
		now:    noon,
		leader: "a",
		limits: newLimits(),
		running: map[string][]share{
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
	gpu := func(f *facts) { f.asks.capability = "gpu" }
	hasGPU := func(n *nodestore.Node) { n.Capabilities = []string{"general", "gpu"} }
	for _, test := range []struct {
		name   string
		facts  facts
		chosen string
		want   string
	}{
		{"the least loaded", waiting(), "a", "it goes to a, the least loaded of 3 nodes that can take it: 0 of 10 slots in use."},
		{"equals", waiting(func(f *facts) { f.running = nil }), "a b c", "it goes to a or b or c, equally loaded: 0 of 10 slots in use."},
		{"not the one that drains", waiting(on("a", state(nodestore.Draining))), "b", "it goes to b, the least loaded of 2 nodes that can take it: 2 of 10 slots in use."},
		{"no leader", waiting(func(f *facts) { f.leader = "" }), "a", "nobody leads the scheduler, so it is offered to no node; it would go to a, the least loaded of 3 nodes that can take it: 0 of 10 slots in use."},
		{"paused", waiting(func(f *facts) { f.pausedAt = noon }), "a", "queue q is paused since 2026-11-20T12:00:00Z; forge queue resume q lets it go on."},
		{"limit", waiting(func(f *facts) {
			f.limits.set([]queuestore.Limit{{Scope: queuestore.ScopeJob, Name: "k", Most: 2}})
			f.limits.taken[group{queuestore.ScopeJob, "k"}] = 2
		}), "a", "kind k runs as many jobs as its global_limit of 2 lets the whole cluster."},
		{"capability", waiting(gpu), "", "no node has capability gpu; nodes have general."},
		{"capability of one", waiting(gpu, on("c", hasGPU)), "c", "it goes to c, the only node that can take it."},
		{"capability of one that drains", waiting(gpu, on("c", hasGPU), on("c", state(nodestore.Draining))), "", "none of 3 nodes can take it: a lacks capability gpu; b lacks capability gpu; c is draining."},
		{"capability of a dead one", waiting(gpu, on("c", hasGPU), on("c", state(nodestore.Dead))), "", "no node has capability gpu; nodes have general."},
		{"no capabilities at all", waiting(gpu, onAll(func(n *nodestore.Node) { n.Capabilities = nil })), "", "no node has capability gpu; nodes have none."},
		{"kind", waiting(func(f *facts) { f.job.Kind, f.asks.kind = "mail", "mail" }), "", "no node has a worker for kind mail."},
		{"definition", waiting(func(f *facts) { f.inForce.digests = map[string]string{"k": "another"} }), "", "no node defines k as the configuration in force does."},
		{"queue", waiting(func(f *facts) { f.job.Queue, f.asks.queue = "slow", "slow" }), "", "no node works queue slow."},
		{"tags", waiting(func(f *facts) { f.asks.tags = map[string]string{"zone": "eu", "disk": "ssd"} }), "", "no node has the tags disk=ssd, zone=eu."},
		{
			"tags that differ", waiting(func(f *facts) { f.asks.tags = map[string]string{"zone": "eu"} },
				on("a", func(n *nodestore.Node) { n.Tags = map[string]string{"zone": "us"} }), on("b", state(nodestore.Draining)), on("b", func(n *nodestore.Node) { n.Tags = map[string]string{"zone": "eu"} })),
			"", "none of 3 nodes can take it: a has tag zone=us, not eu; b is draining; c lacks tag zone=eu.",
		},
		{"unreadable tags", waiting(func(f *facts) { f.asks.unreadable = true }), "", "its tags cannot be read: want an object of strings."},
		{"draining", waiting(onAll(state(nodestore.Draining))), "", "every node is draining."},
		{"dead", waiting(onAll(state(nodestore.Dead))), "", "no node is alive."},
		{"left", waiting(onAll(state(nodestore.Left))), "", "no node is alive."},
		{"fenced", waiting(onAll(func(n *nodestore.Node) { n.FencedAt = noon })), "", "no node is alive."},
		{"full", waiting(onAll(func(n *nodestore.Node) { n.Slots = 4 }), func(f *facts) {
			f.running[nodestore.ClientID("a", "inc-a")] = []share{{"other", "l", 4}}
			f.running[nodestore.ClientID("b", "inc-b")] = []share{{"q", "k", 5}}
		}), "", "no node has a free slot: a has 4 of 4 slots in use; b has 5 of 4 slots in use; c has 4 of 4 slots in use."},
		{"full queue", waiting(onAll(func(n *nodestore.Node) { n.Queues = map[string]int{"q": 2} }), func(f *facts) {
			f.running[nodestore.ClientID("a", "inc-a")] = []share{{"q", "l", 2}}
		}), "", "no node has a free slot: a has 2 of 2 places of queue q in use; b has 2 of 2 places of queue q in use; c has 3 of 2 places of queue q in use."},
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
		{RoundRobin, waiting(), "it goes to a or b or c, which take turns."},
		{Spread, waiting(), "it goes to a, with the fewest jobs of kind k of 3 nodes that can take it: 0."},
		{Spread, waiting(noneOnA), "it goes to c, with the fewest jobs of kind k of 2 nodes that can take it: 1."},
		{Spread, waiting(func(f *facts) { f.asks.kind, f.job.Kind = "m", "m" }, onAll(func(n *nodestore.Node) { n.Kinds = []string{"m"} })), "it goes to a, with the fewest jobs of kind m of 3 nodes that can take it: 0."},
		{Spread, waiting(func(f *facts) { f.running = nil }), "it goes to a or b or c, with the fewest jobs of kind k of 3 nodes that can take it: 0."},
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
				f.asks.capability = "gpu"
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
		f := waiting(test.change)
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

// What is explained is what the leader does: a node is rejected exactly when the
// leader would not give it the job, and the chosen ones hold the one it picks.
func TestExplainAgreesWithTheLeader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		strategy := rapid.SampledFrom([]string{LeastLoaded, RoundRobin, Spread}).Draw(t, "strategy")
		candidates := f.candidates(strategy)
		seat := func(nodes ...nodestore.Node) *board {
			b := newBoard(1, strategy)
			b.inForce = f.inForce
			b.seat(nodes)
			for _, n := range nodes {
				credit := wire.Credit{Term: 1, Incarnation: n.Incarnation, Slots: n.Slots, Free: map[string]int{}}
				maps.Copy(credit.Free, n.Queues)
				for _, s := range f.running[n.ClientID()] {
					credit.Slots -= s.jobs
					credit.Free[s.queue] -= s.jobs
				}
				b.credit(credit, noon)
			}
			for _, m := range b.members {
				m.crowd = crowdOf(f.running[m.clientID])
			}
			return b
		}
		picked, _ := pick(f.asks, seat(f.nodes...).members, strategy, "")
		found := picked == nil
		for i, n := range f.nodes {
			alone, _ := pick(f.asks, seat(n).members, strategy, "")
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

// drawFacts draws nodes of which each could take the job, but for a few things.
func drawFacts(t *rapid.T) facts {
	f := facts{
		job:     jobstore.Job{State: "available"},
		inForce: definitions{digests: map[string]string{"k": "x"}},
		running: map[string][]share{},
		asks:    job{kind: "k", queue: "q", capability: "gpu", tags: map[string]string{"zone": "eu"}, unreadable: rapid.IntRange(0, 19).Draw(t, "unreadable") == 0},
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
		f.running[n.ClientID()] = []share{
			{"q", "k", rapid.IntRange(0, 1).Draw(t, "running")},
			{"q", "l", rapid.IntRange(0, 1).Draw(t, "others")},
			{"r", "k", rapid.IntRange(0, 1).Draw(t, "more")},
		}
		f.nodes = append(f.nodes, n)
	}
	return f
}

// What is explained is read from the database, where no node has to be up.
func TestExplainReadsTheDatabase(t *testing.T) {
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
		p, err := Explain(t.Context(), pool, 1, Rules{Strategy: LeastLoaded})
		if err != nil || !strings.Contains(p.Sentence, want) {
			t.Fatalf("got %q, want %q in it: %v", p.Sentence, want, err)
		}
		return p
	}
	if _, err := Explain(t.Context(), pool, 1, Rules{}); !errors.Is(err, jobstore.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
	exec(`INSERT INTO river_job (args, kind, queue, state, max_attempts, metadata)
		VALUES ('{}', 'k', 'q', 'available', 3, '{"forge:capability": "gpu", "forge:tags": {"zone": "eu"}}')`)
	says("no node is alive.")
	exec(`INSERT INTO forge_nodes (node_id, incarnation, state, slots, kinds, queues, capabilities, tags, last_heartbeat_at)
		VALUES ('a', '00000000000000aa', 'active', 5, '{k}', '{"q": 2}', '{general}', '{"zone": "eu"}', now()),
		       ('b', '00000000000000bb', 'active', 5, '{k}', '{"q": 2}', '{gpu}', '{"zone": "eu"}', now())`)
	says("nobody leads the scheduler, so it is offered to no node; it would go to b, the only node that can take it.")
	exec(`INSERT INTO forge_leaders (role, term, node_id, incarnation, lease_until) VALUES ('scheduler', 1, 'a', '00000000000000aa', now() + interval '1 hour')`)
	p := says("it goes to b, the only node")
	if p.Capability != "gpu" || p.Tags["zone"] != "eu" || p.Leader != "a" || len(p.Candidates) != 2 || p.Candidates[0].Rejected[0].Reason != explain.NoAbility {
		t.Errorf("%+v", p)
	}
	exec(`INSERT INTO river_job (args, kind, queue, state, max_attempts, attempted_by) SELECT '{}', 'k', 'q', 'running', 3, '{other-x,b-00000000000000bb}' FROM generate_series(1, 2)`)
	says("a lacks capability gpu; b has 2 of 2 places of queue q in use")
	exec(`DELETE FROM river_job WHERE id = 3`)
	exec(`INSERT INTO forge_limits (scope, name, most) VALUES ('queue', 'q', 2)`)
	says("it goes to b, the only node")
	exec(`UPDATE forge_limits SET most = 1`)
	says("queue q runs as many jobs as its global_limit of 1 lets the whole cluster.")
	exec(`INSERT INTO river_queue (name, paused_at, updated_at) VALUES ('q', now(), now())`)
	says("queue q is paused since")
	exec(`DELETE FROM river_queue`)
	exec(`UPDATE forge_nodes SET last_heartbeat_at = now() - interval '1 minute'`)
	if p := says("no node is alive."); !strings.HasPrefix(p.Candidates[1].Rejected[0].Detail, "is dead: nothing was heard from it for 1m") {
		t.Errorf("%+v", p.Candidates)
	}
}
