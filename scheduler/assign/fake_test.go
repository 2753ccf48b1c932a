package assign_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

const (
	schema   = "public"
	patience = 10 * time.Second
)

// cluster is a database with a term, and what the tests do to it.
type cluster struct {
	pool    *pgxpool.Pool
	metrics *metrics.Metrics
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{pool: pgtest.Pool(t), metrics: metrics.New("test")}
}

// mint makes a term current.
func (c *cluster) mint(t *testing.T, term int64) leaderstore.Fence {
	t.Helper()
	fence := leaderstore.Fence{Role: "scheduler", Term: term, NodeID: "leader", Incarnation: fmt.Sprintf("%016x", term)}
	c.exec(t, `INSERT INTO forge_leaders (role, node_id, incarnation, term) VALUES ($1, $2, $3, $4)
		ON CONFLICT (role) DO UPDATE SET incarnation = $3, term = $4`, fence.Role, fence.NodeID, fence.Incarnation, term)
	return fence
}

func (c *cluster) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := c.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// lead runs an assigner until the test ends or stop is called, which returns
// what Lead did.
func (c *cluster) lead(t *testing.T, fence leaderstore.Fence, strategy string) (stop func() error) {
	t.Helper()
	assigner, err := assign.New(assign.Options{
		Pool: c.pool, Metrics: c.metrics, Logger: slog.New(slog.DiscardHandler), Schema: schema, Strategy: strategy,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- assigner.Lead(ctx, fence) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// insert adds available jobs and notifies as River does.
func (c *cluster) insert(t *testing.T, n int, kind, queue, metadata string) {
	t.Helper()
	if metadata == "" {
		metadata = "{}"
	}
	c.exec(t, `INSERT INTO river_job (kind, queue, args, metadata)
		SELECT $1, $2, '{}', $3::jsonb FROM generate_series(1, $4)`, kind, queue, metadata, n)
	c.exec(t, `SELECT pg_notify('public.river_insert', json_build_object('queue', $1::text)::text)`, queue)
}

func (c *cluster) count(t *testing.T, where string) int {
	t.Helper()
	var n int
	if err := c.pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE "+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (c *cluster) waitFor(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// fakeNode answers offers as a node would: it claims, and reports its credit.
type fakeNode struct {
	node nodestore.Node
	conn *pgx.Conn

	mu     sync.Mutex
	offers []wire.Offer
	claims map[int64]bool
	free   int
	// lose makes the node deaf to an offer.
	lose func(offer wire.Offer) bool
	// busy keeps the slots of claimed jobs in use.
	busy bool
}

// join registers a node and lets it listen until the test ends.
func (c *cluster) join(t *testing.T, n nodestore.Node, change ...func(*fakeNode)) *fakeNode {
	t.Helper()
	n.Incarnation = fmt.Sprintf("%016x", []byte(n.NodeID)[0])
	if n.Kinds == nil {
		n.Kinds = []string{"k"}
	}
	if n.Queues == nil {
		n.Queues = map[string]int{"default": n.Slots}
	}
	f := &fakeNode{node: n, claims: map[int64]bool{}, free: n.Slots, lose: func(wire.Offer) bool { return false }}
	for _, set := range change {
		set(f)
	}
	conn, err := pgx.ConnectConfig(t.Context(), c.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	f.conn = conn
	f.exec(t.Context(), t, "LISTEN "+pgx.Identifier{wire.OfferChannel(schema, n.Incarnation)}.Sanitize())
	if err := nodestore.Register(t.Context(), c.pool, n, nodestore.Policy{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.serve(ctx, t) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = conn.Close(context.Background())
	})
	return f
}

func (f *fakeNode) exec(ctx context.Context, t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := f.conn.Exec(ctx, sql, args...); err != nil && ctx.Err() == nil {
		t.Errorf("node %s: %v", f.node.NodeID, err)
	}
}

func (f *fakeNode) serve(ctx context.Context, t *testing.T) {
	t.Helper()
	for {
		note, err := f.conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		offer, err := wire.Unmarshal[wire.Offer](note.Payload)
		if err != nil {
			t.Errorf("offer: %v", err)
			return
		}
		f.answer(ctx, t, offer)
	}
}

func (f *fakeNode) answer(ctx context.Context, t *testing.T, offer wire.Offer) {
	t.Helper()
	f.mu.Lock()
	f.offers = append(f.offers, offer)
	lost := f.lose(offer)
	f.mu.Unlock()
	if lost {
		return
	}
	for _, ids := range offer.Jobs {
		f.claim(ctx, t, ids)
	}
	f.mu.Lock()
	credit := wire.Credit{
		NodeID: f.node.NodeID, Incarnation: f.node.Incarnation, Term: offer.Term, Seen: offer.Seq,
		Slots: f.free, Free: map[string]int{},
	}
	for queue := range f.node.Queues {
		credit.Free[queue] = f.free
	}
	f.mu.Unlock()
	f.exec(ctx, t, "SELECT pg_notify($1, $2)", wire.Channel(schema, wire.CreditChannel), wire.Marshal(credit))
}

func (f *fakeNode) claim(ctx context.Context, t *testing.T, ids []int64) {
	t.Helper()
	rows, _ := f.conn.Query(ctx, `UPDATE river_job SET state = 'running', attempt = attempt + 1, attempted_at = now(),
		attempted_by = array_append(attempted_by, $2::text)
		WHERE id = ANY ($1) AND state = 'available' RETURNING id`, ids, f.node.ClientID())
	claimed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("node %s claims: %v", f.node.NodeID, err)
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range claimed {
		f.claims[id] = true
	}
	if f.busy {
		f.free -= len(claimed)
	}
}

func (f *fakeNode) claimed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.claims)
}

// offered counts the offers with jobs, and asked those without.
func (f *fakeNode) offered() (offered, asked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, offer := range f.offers {
		if len(offer.Jobs) > 0 {
			offered++
		} else {
			asked++
		}
	}
	return offered, asked
}
