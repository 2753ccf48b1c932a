package assign_test

import (
	"context"
	"errors"
	"log/slog"
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

func TestNewRefusesAnUnknownStrategy(t *testing.T) {
	t.Parallel()
	_, err := assign.New(assign.Options{Strategy: "random", Logger: slog.New(slog.DiscardHandler), Metrics: metrics.New("test")})
	if err == nil || !strings.Contains(err.Error(), "least_loaded") {
		t.Errorf("New() = %v", err)
	}
}

func TestJobsGoToNodesThatCanRunThem(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.mint(t, 1)
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
	if got := testutil.ToFloat64(c.metrics.AssignmentOffers); got != 22 {
		t.Errorf("forge_assignment_offers_total = %v, want 22", got)
	}
}

func TestJobsSpreadEvenly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.mint(t, 1)
	busy := func(f *fakeNode) { f.busy = true }
	nodes := []*fakeNode{
		c.join(t, nodestore.Node{NodeID: "a", Slots: 100}, busy),
		c.join(t, nodestore.Node{NodeID: "b", Slots: 100}, busy),
		c.join(t, nodestore.Node{NodeID: "c", Slots: 100}, busy),
	}
	c.lead(t, fence, assign.LeastLoaded)
	for _, n := range nodes {
		c.waitFor(t, "the first question", func() bool { _, asked := n.offered(); return asked > 0 })
	}
	c.insert(t, 150, "k", "default", "")
	c.waitFor(t, "all to be claimed", func() bool { return c.count(t, "state = 'available'") == 0 })
	for _, n := range nodes {
		if got := n.claimed(); got < 40 || got > 60 {
			t.Errorf("node %s got %d of 150 jobs", n.node.NodeID, got)
		}
	}
}

// Credit bounds what a node is offered, and what is left waits for more.
func TestFullNodesAreOfferedNoMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.mint(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 20}, func(f *fakeNode) { f.busy = true })
	c.insert(t, 50, "k", "default", "")
	c.lead(t, fence, assign.LeastLoaded)
	c.waitFor(t, "the node to be full", func() bool { return n.claimed() == 20 })
	n.mu.Lock()
	n.free = 30
	n.mu.Unlock()
	c.exec(t, "SELECT pg_notify($1, $2)", wire.Channel(schema, wire.CreditChannel), wire.Marshal(wire.Credit{
		NodeID: "a", Incarnation: n.node.Incarnation, Term: 1, Seen: 1000, Slots: 30, Free: map[string]int{"default": 30},
	}))
	c.waitFor(t, "the rest", func() bool { return n.claimed() == 50 })
	n.mu.Lock()
	defer n.mu.Unlock()
	total := 0
	for _, offer := range n.offers {
		total += len(offer.Jobs["default"])
	}
	if total != 50 {
		t.Errorf("offered %d jobs for 50", total)
	}
}

func TestLostOfferIsMadeAgainToAnother(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.mint(t, 1)
	deaf := c.join(t, nodestore.Node{NodeID: "a", Slots: 50}, func(f *fakeNode) {
		f.lose = func(offer wire.Offer) bool { return len(offer.Jobs) > 0 }
	})
	// Busier by share, so that the deaf one comes first.
	other := c.join(t, nodestore.Node{NodeID: "b", Slots: 50}, func(f *fakeNode) { f.free = 20 })
	c.lead(t, fence, assign.LeastLoaded)
	for _, n := range []*fakeNode{deaf, other} {
		c.waitFor(t, "the first question", func() bool { _, asked := n.offered(); return asked > 0 })
	}
	c.insert(t, 1, "k", "default", "")
	start := time.Now()
	c.waitFor(t, "the job to be claimed", func() bool { return other.claimed() == 1 })
	if took := time.Since(start); took < 400*time.Millisecond || took > 15*time.Second {
		t.Errorf("offered again after %v", took)
	}
	if offered, _ := deaf.offered(); offered != 1 {
		t.Errorf("the deaf node got %d offers", offered)
	}
}

func TestDeposedLeaderOffersNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	old := c.mint(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	stop := c.lead(t, old, assign.LeastLoaded)
	c.waitFor(t, "the first question", func() bool { _, asked := n.offered(); return asked > 0 })
	c.mint(t, 2)
	c.insert(t, 3, "k", "default", "")
	// The deposed leader ends by itself, so its connection listens no more.
	c.waitFor(t, "the deposed leader to end", func() bool { return c.listeners(t) == 0 })
	if err := stop(); !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("Lead() = %v, want ErrDeposed", err)
	}
	if offered, _ := n.offered(); offered != 0 {
		t.Errorf("a deposed leader made %d offers", offered)
	}
	if got := c.count(t, "state = 'available'"); got != 3 {
		t.Errorf("%d of 3 jobs are available", got)
	}
}

// listeners counts sessions whose last statement was an assigner's.
func (c *cluster) listeners(t *testing.T) int {
	t.Helper()
	var n int
	err := c.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND (query LIKE '%FROM f, unnest(%' OR query LIKE '%WITH ORDINALITY%' OR query LIKE '%LISTEN%river_insert%'
		     OR query LIKE '%FROM forge_nodes%ORDER BY node_id%')`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNewTermGathersCreditAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	for term := int64(1); term <= 3; term++ {
		fence := c.mint(t, term)
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
			t.Errorf("term %d began with jobs, not with a question", offer.Term)
		}
	}
}

// A large backlog that nobody can take delays the rest by little, and counts as
// waiting.
func TestUnplaceableBacklogStarvesNobody(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.mint(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Queues: map[string]int{"default": 50, "second": 50}})
	c.insert(t, 3000, "nobody", "default", "")
	c.insert(t, 40, "k", "default", "")
	c.insert(t, 40, "k", "second", "")
	c.lead(t, fence, assign.LeastLoaded)
	c.waitFor(t, "the jobs behind the backlog", func() bool { return n.claimed() == 80 })
	c.waitFor(t, "the waiting jobs to be counted", func() bool {
		return testutil.ToFloat64(c.metrics.AssignmentWaiting) == 3000
	})
}

func TestPausedQueueWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.mint(t, 1)
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

// River makes a retry that is due within seconds available at once, with its
// time ahead.
func TestAvailableJobWaitsForItsTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.mint(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.lead(t, fence, assign.LeastLoaded)
	c.waitFor(t, "the first question", func() bool { _, asked := n.offered(); return asked > 0 })
	c.exec(t, `INSERT INTO river_job (kind, args, scheduled_at) VALUES ('k', '{}', now() + interval '700 ms')`)
	c.insert(t, 1, "k", "default", "")
	c.waitFor(t, "both jobs", func() bool { return n.claimed() == 2 })
	var late time.Duration
	err := c.pool.QueryRow(t.Context(), `SELECT max(attempted_at - scheduled_at) FROM river_job`).Scan(&late)
	if err != nil {
		t.Fatal(err)
	}
	if early := c.count(t, "attempted_at < scheduled_at"); early > 0 || late > 5*time.Second {
		t.Errorf("%d jobs early, latest by %v", early, late)
	}
}

func TestNodeThatJoinsLaterIsUsed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.mint(t, 1)
	c.lead(t, fence, assign.LeastLoaded)
	c.insert(t, 5, "k", "default", "")
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.waitFor(t, "the jobs", func() bool { return n.claimed() == 5 })
	if err := nodestore.SetState(t.Context(), c.pool, "a", n.node.Incarnation, nodestore.Draining); err != nil {
		t.Fatal(err)
	}
	late := c.join(t, nodestore.Node{NodeID: "b", Slots: 50})
	c.waitFor(t, "the second node to be asked", func() bool { _, asked := late.offered(); return asked > 0 })
	c.insert(t, 5, "k", "default", "")
	c.waitFor(t, "the jobs", func() bool { return late.claimed() == 5 })
}

func TestLostConnectionIsMadeAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.mint(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.lead(t, fence, assign.LeastLoaded)
	c.waitFor(t, "the first question", func() bool { _, asked := n.offered(); return asked > 0 })
	c.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%FROM f, unnest(%'`)
	c.insert(t, 5, "k", "default", "")
	c.waitFor(t, "the jobs", func() bool { return n.claimed() == 5 })
}

// statements counts what goes over a pool's connections.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestIdleCostsLittle(t *testing.T) {
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
	fence := c.mint(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.lead(t, fence, assign.LeastLoaded)
	c.waitFor(t, "the first question", func() bool { _, asked := n.offered(); return asked > 0 })
	time.Sleep(2 * time.Second) // past the follow-ups
	before := counted.n.Load()
	time.Sleep(5 * time.Second) // the thing measured is a rate
	if got := counted.n.Load() - before; got < 1 || got > 5 {
		t.Errorf("%d statements in five idle seconds", got)
	}
}
