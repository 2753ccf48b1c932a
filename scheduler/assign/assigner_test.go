package assign_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

func TestNewRejectsUnknownStrategy(t *testing.T) {
	t.Parallel()
	_, err := assign.New(assign.Options{Strategy: "random", Logger: slog.New(slog.DiscardHandler), Metrics: metrics.New("test")})
	if err == nil || !strings.Contains(err.Error(), "least_loaded") {
		t.Errorf("New() = %v", err)
	}
}

func TestJobsGoToNodesThatCanRunThem(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	plain := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	gpu := c.join(t, nodestore.Node{NodeID: "b", Slots: 50, Capabilities: []string{"gpu"}})
	tagged := c.join(t, nodestore.Node{NodeID: "c", Slots: 50, Tags: map[string]string{"zone": "eu"}})
	other := c.join(t, nodestore.Node{NodeID: "d", Slots: 50, Kinds: []string{"other"}})
	c.lead(t, fence, assign.LeastLoaded)

	c.insert(t, 10, "k", "default", `{"forge:capability": "gpu"}`)
	c.insert(t, 7, "k", "default", `{"forge:tags": {"zone": "eu"}}`)
	c.insert(t, 5, "other", "default", "")
	c.waitFor(t, "all to be claimed", func() bool { return c.count(t, "state = 'available'") == 0 })
	if plain.claimed() != 0 || gpu.claimed() != 10 || tagged.claimed() != 7 || other.claimed() != 5 {
		t.Errorf("claimed: plain %d, gpu %d, tagged %d, other %d", plain.claimed(), gpu.claimed(), tagged.claimed(), other.claimed())
	}
	// An offer is counted after it is sent. A job that is not claimed in time is offered
	// again.
	c.waitFor(t, "every offer to be counted", func() bool {
		made := len(slices.Concat(plain.jobsOffered(), gpu.jobsOffered(), tagged.jobsOffered(), other.jobsOffered()))
		return made >= 22 && testutil.ToFloat64(c.metrics.AssignmentOffers) == float64(made)
	})
}

func TestJobsSpreadEvenly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	busy := func(f *fakeNode) { f.busy = true }
	nodes := []*fakeNode{
		c.join(t, nodestore.Node{NodeID: "a", Slots: 100, Kinds: []string{"k", "a"}}, busy),
		c.join(t, nodestore.Node{NodeID: "b", Slots: 100, Kinds: []string{"k", "b"}}, busy),
		c.join(t, nodestore.Node{NodeID: "c", Slots: 100, Kinds: []string{"k", "c"}}, busy),
	}
	c.lead(t, fence, assign.LeastLoaded)
	c.awaitCreditKnown(t, nodes...)
	next := c.listenForOffers(t, nodes...)
	c.insert(t, 150, "k", "default", "")
	c.waitFor(t, "all to be claimed", func() bool { return c.count(t, "state = 'available'") == 0 })
	// A job that is not claimed in time is offered to another node, so only first offers
	// count.
	first, given := map[int64]bool{}, map[*fakeNode]int{}
	for len(first) < 150 {
		n, ids := next()
		for _, id := range ids {
			if !first[id] {
				first[id] = true
				given[n]++
			}
		}
	}
	for _, n := range nodes {
		if got := given[n]; got < 40 || got > 60 {
			t.Errorf("node %s was offered %d of 150 jobs", n.node.NodeID, got)
		}
	}
}

// The strategy Spread counts the running jobs of a kind, even if another term assigned
// them. It ignores the size of the nodes.
func TestSpreadBalancesKindsOverNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	busy := func(f *fakeNode) { f.busy = true }
	small := c.join(t, nodestore.Node{NodeID: "a", Slots: 20, Kinds: []string{"k", "a"}}, busy)
	large := c.join(t, nodestore.Node{NodeID: "b", Slots: 900, Kinds: []string{"k", "l", "b"}}, busy)
	for kind, n := range map[string]*fakeNode{"k": small, "l": large} {
		c.exec(t, `INSERT INTO river_job (kind, args, state, attempted_by)
			SELECT $1, '{}', 'running', ARRAY['gone', $2] FROM generate_series(1, 4)`, kind, n.node.ClientID())
	}
	c.lead(t, c.makeLeader(t, 1), assign.Spread)
	c.awaitCreditKnown(t, small, large)
	c.insert(t, 8, "k", "default", "")
	c.waitFor(t, "all to be claimed", func() bool { return c.count(t, "state = 'available'") == 0 })
	if small.claimed() != 1+2 || large.claimed() != 1+6 {
		t.Errorf("of 8 jobs the node with 4 of the kind claimed %d, the one with none %d; want 2 and 6", small.claimed()-1, large.claimed()-1)
	}
}

// A node is offered at most its credit. The other jobs wait for more credit.
func TestFullNodeIsOfferedNoMoreJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 20}, func(f *fakeNode) { f.busy = true })
	c.insert(t, 50, "k", "default", "")
	c.lead(t, fence, assign.LeastLoaded)
	c.waitFor(t, "the node to be full", func() bool { return n.claimed() == 20 })
	if ids := distinct(n.jobsOffered()); len(ids) != 20 {
		t.Errorf("%d jobs were offered for 20 slots", len(ids))
	}
	n.mu.Lock()
	n.free = 30
	n.mu.Unlock()
	c.exec(t, "SELECT pg_notify($1, $2)", wire.Channel(schema, wire.CreditChannel), wire.Marshal(wire.Credit{
		NodeID: "a", Incarnation: n.node.Incarnation, Term: 1, Seen: 1000, Slots: 30, Free: map[string]int{"default": 30},
	}))
	c.waitFor(t, "the other jobs", func() bool { return n.claimed() == 50 })
	if ids := distinct(n.jobsOffered()); len(ids) != 50 {
		t.Errorf("%d of 50 jobs were offered", len(ids))
	}
}

func distinct(ids []int64) []int64 {
	slices.Sort(ids)
	return slices.Compact(ids)
}

func TestLostOfferGoesToAnotherNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	silent := c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Kinds: []string{"k", "a"}})
	// The other node has more of its slots in use, so the silent one is offered the job
	// first.
	other := c.join(t, nodestore.Node{NodeID: "b", Slots: 50, Kinds: []string{"k", "b"}}, func(f *fakeNode) { f.free = 20 })
	c.leadWithShortTimeout(t, c.makeLeader(t, 1))
	c.awaitCreditKnown(t, silent, other)
	next := c.listenForOffers(t, silent, other)
	silent.mu.Lock()
	silent.ignoreOffer = func(offer wire.Offer) bool { return len(offer.Jobs) > 0 }
	silent.mu.Unlock()
	c.insert(t, 1, "k", "default", "")
	c.waitFor(t, "the job to be claimed", func() bool { return other.claimed() == 2 })
	offered := func() *fakeNode {
		for {
			if n, ids := next(); c.count(t, fmt.Sprintf("kind = 'k' AND id = %d", ids[0])) == 1 {
				return n
			}
		}
	}
	if n := offered(); n != silent {
		t.Errorf("the first offer went to %s", n.node.NodeID)
	}
	if n := offered(); n != other {
		t.Error("the silent node was offered the job twice in a row")
	}
}

func TestDeposedLeaderOffersNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	old := c.makeLeader(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	stop, ended := c.leadUntilDone(t, old, assign.LeastLoaded)
	c.awaitCredit(t, n)
	c.makeLeader(t, 2)
	c.insert(t, 3, "k", "default", "")
	select {
	case <-ended:
	case <-time.After(waitTimeout):
		t.Fatal("a deposed leader continues")
	}
	if err := stop(); !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("Lead() = %v, want ErrDeposed", err)
	}
	if offered := n.offered(); offered != 0 {
		t.Errorf("a deposed leader made %d offers", offered)
	}
	if refused := c.refused(); refused != 1 {
		t.Errorf("%v refused writes are counted, want 1", refused)
	}
	if got := c.count(t, "state = 'available'"); got != 3 {
		t.Errorf("%d of 3 jobs are available", got)
	}
}

func TestNewTermRequestsCredit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	for term := int64(1); term <= 3; term++ {
		fence := c.makeLeader(t, term)
		stop := c.lead(t, fence, assign.RoundRobin)
		c.insert(t, 5, "k", "default", "")
		c.waitFor(t, "the term's jobs", func() bool { return n.claimed() == 5*int(term) })
		if err := stop(); err != nil {
			t.Fatalf("Lead() = %v", err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	seq := map[int64]int64{}
	for _, offer := range n.offers {
		if offer.Seq != seq[offer.Term]+1 {
			t.Errorf("term %d: offer %d after %d", offer.Term, offer.Seq, seq[offer.Term])
		}
		if seq[offer.Term]++; offer.Seq == 1 && len(offer.Jobs) > 0 {
			t.Errorf("term %d began with jobs, not with a credit request", offer.Term)
		}
	}
}

// A large backlog that no node can take hardly delays other jobs, and counts as waiting.
func TestUnplaceableBacklogDoesNotDelayOtherJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Queues: map[string]int{"default": 50, "second": 50}})
	c.insert(t, 3000, "unworked", "default", "")
	c.insert(t, 40, "k", "default", "")
	c.insert(t, 40, "k", "second", "")
	c.lead(t, fence, assign.LeastLoaded)
	c.waitFor(t, "the jobs behind the backlog", func() bool { return n.claimed() == 80 })
	c.waitFor(t, "the waiting jobs to be counted", func() bool {
		return testutil.ToFloat64(c.metrics.AssignmentWaiting) == 3000
	})
}

// A kind without a worker on any live node is reported until a node works it.
func TestUnworkedKindIsLoggedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Queues: map[string]int{"default": 50, "second": 50}})
	c.insert(t, 3, "late", "default", "")
	c.insert(t, 2, "late", "second", "")
	c.insert(t, 1, "k", "default", `{"forge:capability": "gpu"}`) // a node works this kind
	for i := range 101 {
		c.insert(t, 1, fmt.Sprintf("odd-%03d", i), "default", "")
	}
	var logged bytes.Buffer
	stop, _ := c.leadUntilDone(t, c.makeLeader(t, 1), assign.LeastLoaded, func(a *assign.Assigner) { assign.LogTo(a, slog.New(slog.NewTextHandler(&logged, nil))) })
	series := func(kind string) float64 {
		return testutil.ToFloat64(c.metrics.AssignmentUnworked.WithLabelValues(kind))
	}
	c.waitFor(t, "every kind to be reported", func() bool {
		return testutil.CollectAndCount(c.metrics.AssignmentUnworked) == 101 && series("late") == 5 && series("odd-098") == 1 && series("_other") == 2
	})
	b := c.join(t, nodestore.Node{NodeID: "b", Slots: 50, Kinds: []string{"late"}, Queues: map[string]int{"default": 50, "second": 50}})
	c.waitFor(t, "the node that works it", func() bool { return b.claimed() == 5 })
	c.waitFor(t, "only the other kinds to be reported", func() bool {
		return testutil.CollectAndCount(c.metrics.AssignmentUnworked) == 101 && series("_other") == 1
	})
	_ = stop()
	if n := strings.Count(logged.String(), `level=WARN msg="no live node has a worker for a kind; its jobs wait" term=1 kind=late `); n != 1 {
		t.Errorf("it was logged %d times of the kind:\n%s", n, logged.String())
	}
	if n := testutil.CollectAndCount(c.metrics.AssignmentUnworked); n != 0 {
		t.Errorf("%d kinds are reported by a node that does not lead", n)
	}
}

// With few free slots, urgent jobs go first in any queue, even if they arrived last.
func TestUrgentJobsGoFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 4, Queues: map[string]int{"default": 4, "second": 4}}, func(f *fakeNode) { f.busy = true })
	c.insert(t, 300, "k", "default", "")
	c.exec(t, "UPDATE river_job SET priority = 3")
	for priority, queue := range map[int]string{2: "default", 1: "second"} {
		c.exec(t, "INSERT INTO river_job (kind, queue, args, priority) SELECT 'k', $1, '{}', $2 FROM generate_series(1, 2)", queue, priority)
	}
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.waitFor(t, "the node to be full", func() bool { return n.claimed() == 4 })
	if got := c.count(t, "state = 'running' AND priority < 3"); got != 4 {
		t.Errorf("%d of the 4 that run are urgent", got)
	}
}

func TestPausedQueueWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Queues: map[string]int{"default": 50, "second": 50}})
	c.exec(t, "INSERT INTO river_queue (name, paused_at) VALUES ('second', now())")
	c.lead(t, fence, assign.LeastLoaded)
	c.insert(t, 1, "k", "second", "")
	c.insert(t, 1, "k", "default", "")
	c.waitFor(t, "the other queue's job", func() bool { return n.claimed() == 1 })
	if got := c.count(t, "state = 'available' AND queue = 'second'"); got != 1 {
		t.Error("a job of a paused queue was offered")
	}
	c.exec(t, "UPDATE river_queue SET paused_at = NULL")
	c.exec(t, `SELECT pg_notify('public.river_control', '{"action": "resume", "queue": "second"}')`)
	c.waitFor(t, "the resumed queue's job", func() bool { return n.claimed() == 2 })
}

// River makes a retry that is due within seconds available early, with a future
// scheduled_at.
func TestAvailableJobIsNotOfferedBeforeItsTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.lead(t, fence, assign.LeastLoaded)
	c.awaitCredit(t, n)
	c.exec(t, `INSERT INTO river_job (kind, args, scheduled_at) VALUES ('k', '{}', now() + interval '700 ms')`)
	c.insert(t, 1, "k", "default", "")
	c.waitFor(t, "both jobs", func() bool { return n.claimed() == 2 })
	if early := c.count(t, "attempted_at < scheduled_at"); early > 0 {
		t.Errorf("%d jobs were claimed too early", early)
	}
}

func TestNewNodeIsOfferedJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	c.lead(t, fence, assign.LeastLoaded)
	c.insert(t, 5, "k", "default", "")
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.waitFor(t, "the jobs", func() bool { return n.claimed() == 5 })
	if err := nodestore.New(c.pool).SetState(t.Context(), "a", n.node.Incarnation, nodestore.Draining); err != nil {
		t.Fatal(err)
	}
	late := c.join(t, nodestore.Node{NodeID: "b", Slots: 50})
	c.awaitCredit(t, late)
	c.insert(t, 5, "k", "default", "")
	c.waitFor(t, "the jobs", func() bool { return late.claimed() == 5 })
}

func TestLostConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.lead(t, fence, assign.LeastLoaded)
	c.awaitCredit(t, n)
	operator, err := pgx.ConnectConfig(t.Context(), c.pool.Config().ConnConfig) // the pool may give out the leader's session
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = operator.Close(context.WithoutCancel(t.Context())) }()
	jobs := 0
	c.waitFor(t, "the leader's session to be terminated", func() bool {
		c.insert(t, 1, "k", "default", "") // its last statements read and offer the job
		jobs++
		c.waitFor(t, "the job", func() bool { return n.claimed() == jobs })
		var ended int
		err := operator.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()
			  AND (query LIKE '%FROM unnest((SELECT ' || '$1%' OR query LIKE '%pg_notify(n.' || 'chan%')`).Scan(&ended)
		if err != nil {
			t.Fatal(err)
		}
		return ended > 0
	})
	c.pool.Reset() // it would give out the ended session to this test
	c.insert(t, 5, "k", "default", "")
	c.waitFor(t, "the jobs", func() bool { return n.claimed() == jobs+5 })
}

// statements counts the statements of a pool, a batch as one, and the sweeps among them.
type statements struct{ all, sweeps atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.all.Add(1)
	if strings.Contains(data.SQL, "AS s (queue, priority") {
		s.sweeps.Add(1)
	}
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	return s.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: data.Batch.QueuedQueries[data.Batch.Len()-1].SQL})
}

func (*statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// An idle assigner sweeps every two seconds, and reads the node list with three
// statements every ten seconds. On a slow machine, the first interval may still contain
// follow-ups, so the test measures until one interval is idle.
func TestIdleAssignerRunsFewStatements(t *testing.T) {
	t.Parallel()
	var counted statements
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = &counted
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c := &cluster{pool: pool, metrics: metrics.New("test")}
	fence := c.makeLeader(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.lead(t, fence, assign.LeastLoaded)
	c.awaitCredit(t, n)
	time.Sleep(1500 * time.Millisecond) // longer than the follow-ups
	const length, most, nodeList = 3 * time.Second, 2, 3
	c.waitFor(t, "an idle interval", func() bool {
		all, sweeps := counted.all.Load(), counted.sweeps.Load()
		time.Sleep(length) // the test measures a rate
		sweeps, all = counted.sweeps.Load()-sweeps, counted.all.Load()-all
		t.Logf("%d sweeps, %d statements in %s", sweeps, all, length)
		return sweeps >= 1 && sweeps <= most && all <= sweeps+nodeList
	})
}
