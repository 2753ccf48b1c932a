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
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

const (
	schema      = "public"
	waitTimeout = time.Minute
)

// cluster is a database with a leader, and helpers for tests.
type cluster struct {
	pool    *pgxpool.Pool
	metrics *metrics.Metrics
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{pool: pgtest.Pool(t), metrics: metrics.New("test")}
}

// makeLeader makes a term the current one.
func (c *cluster) makeLeader(t *testing.T, term int64) leaderstore.Fence {
	t.Helper()
	fence := leaderstore.Fence{Role: "scheduler", Term: term, NodeID: "leader", Incarnation: fmt.Sprintf("%016x", term)}
	c.exec(t, `INSERT INTO forge_leaders (role, node_id, incarnation, term) VALUES ($1, $2, $3, $4)
		ON CONFLICT (role) DO UPDATE SET incarnation = $3, term = $4`, fence.Role, fence.NodeID, fence.Incarnation, term)
	fence.Refused = c.metrics.LeaderFencedWrites.WithLabelValues(fence.Role, fence.NodeID)
	return fence
}

// refused returns the number of counted writes of deposed leaders.
func (c *cluster) refused() float64 {
	return testutil.ToFloat64(c.metrics.LeaderFencedWrites.WithLabelValues("scheduler", "leader"))
}

func (c *cluster) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := c.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// lead runs an assigner until the test ends or stop is called. stop returns the error of
// Lead. The offer timeout is so long that slow claims do not cause a second offer.
func (c *cluster) lead(t *testing.T, fence leaderstore.Fence, strategy string) (stop func() error) {
	t.Helper()
	stop, _ = c.leadUntilDone(t, fence, strategy, func(a *assign.Assigner) { assign.SetOfferTimeout(a, time.Hour) })
	return stop
}

// leadWithShortTimeout is like lead, but offers lost jobs again.
func (c *cluster) leadWithShortTimeout(t *testing.T, fence leaderstore.Fence) {
	t.Helper()
	c.leadUntilDone(t, fence, assign.LeastLoaded)
}

// leadUntilDone runs an assigner as a node does. ended is closed when Lead returns.
func (c *cluster) leadUntilDone(
	t *testing.T, fence leaderstore.Fence, strategy string, change ...func(*assign.Assigner),
) (stop func() error, ended <-chan struct{}) {
	t.Helper()
	assigner, err := assign.New(assign.Options{
		Pool: c.pool, Metrics: c.metrics, Logger: slog.New(slog.DiscardHandler), Schema: schema, Strategy: strategy,
		Notifier: postgres.NewNotifier(c.pool, slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range change {
		set(assigner)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = assigner.Lead(ctx, fence)
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop, done
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
	for deadline := time.Now().Add(waitTimeout); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// fakeNode answers offers as a node would: it claims jobs and reports credit.
type fakeNode struct {
	node nodestore.Node
	conn *pgx.Conn

	mu     sync.Mutex
	offers []wire.Offer
	claims map[int64]bool
	free   int
	// answered is the number of answered credit requests.
	answered int
	// ignoreOffer makes the node ignore an offer.
	ignoreOffer func(offer wire.Offer) bool
	// busy keeps the slots of claimed jobs in use.
	busy bool
	// earlier is whether the node has an earlier version, which counts limited jobs.
	earlier bool
}

// join registers a node that listens until the test ends.
func (c *cluster) join(t *testing.T, n nodestore.Node, change ...func(*fakeNode)) *fakeNode {
	t.Helper()
	n.Incarnation = fmt.Sprintf("%016x", []byte(n.NodeID)[0])
	if n.Kinds == nil {
		n.Kinds = []string{"k"}
	}
	if n.Queues == nil {
		n.Queues = map[string]int{"default": n.Slots}
	}
	f := &fakeNode{node: n, claims: map[int64]bool{}, free: n.Slots, ignoreOffer: func(wire.Offer) bool { return false }}
	for _, set := range change {
		set(f)
	}
	conn, err := pgx.ConnectConfig(t.Context(), c.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	f.conn = conn
	f.exec(t.Context(), t, "LISTEN "+pgx.Identifier{wire.OfferChannel(schema, n.Incarnation)}.Sanitize())
	if err := nodestore.New(c.pool).Register(t.Context(), n, nodestore.Policy{}); err != nil {
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

// answer claims the jobs and reports credit in one transaction, so the remaining credit
// is visible as soon as the jobs are claimed, even on a slow machine.
func (f *fakeNode) answer(ctx context.Context, t *testing.T, offer wire.Offer) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offers = append(f.offers, offer)
	if f.ignoreOffer(offer) {
		return
	}
	var claimed []int64
	err := pgx.BeginFunc(ctx, f.conn, func(tx pgx.Tx) (err error) {
		for queue, ids := range offer.Jobs {
			rows := make([]int64, len(ids))
			if offer.Rows != nil && !f.earlier {
				rows = offer.Rows[queue]
			}
			some, err := f.claim(ctx, tx, ids, rows)
			if err != nil {
				return err
			}
			claimed = append(claimed, some...)
		}
		_, err = tx.Exec(ctx, "SELECT pg_notify($1, $2)", wire.Channel(schema, wire.CreditChannel), wire.Marshal(f.credit(offer)))
		return err
	})
	if err != nil && ctx.Err() == nil {
		t.Errorf("node %s answers: %v", f.node.NodeID, err)
	}
	for _, id := range claimed {
		f.claims[id] = true
	}
	if len(offer.Jobs) == 0 {
		f.answered++
	}
}

// claim claims available jobs. If the offer names the transactions that wrote their rows, it leaves
// those with other rows.
func (f *fakeNode) claim(ctx context.Context, tx pgx.Tx, ids, rows []int64) ([]int64, error) {
	found, _ := tx.Query(ctx, `UPDATE river_job SET state = 'running', attempt = attempt + 1, attempted_at = now(),
		attempted_by = array_append(attempted_by, $2::text)
		WHERE id = ANY ($1) AND state = 'available' AND ($3::bigint[])[array_position($1, id)] IN (0, xmin::text::bigint) RETURNING id`,
		ids, f.node.ClientID(), rows)
	claimed, err := pgx.CollectRows(found, pgx.RowTo[int64])
	if f.busy {
		f.free -= len(claimed)
	}
	return claimed, err
}

func (f *fakeNode) credit(offer wire.Offer) wire.Credit {
	credit := wire.Credit{
		NodeID: f.node.NodeID, Incarnation: f.node.Incarnation, Term: offer.Term, Seen: offer.Seq,
		Slots: f.free, Free: map[string]int{}, ReadsCounted: !f.earlier,
	}
	for queue := range f.node.Queues {
		credit.Free[queue] = f.free
	}
	return credit
}

func (f *fakeNode) claimed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.claims)
}

// awaitCreditKnown waits until the leader has received the credit of the nodes. It
// inserts one job for each node, whose kind is the node's name, and waits for the claim.
func (c *cluster) awaitCreditKnown(t *testing.T, nodes ...*fakeNode) {
	t.Helper()
	for _, n := range nodes {
		c.insert(t, 1, n.node.NodeID, "default", "")
		c.waitFor(t, "the node's own job", func() bool { return n.claimed() == 1 })
	}
}

// awaitCredit waits until the nodes have answered the leader's first credit request. The
// leader may not have received the answers yet.
func (c *cluster) awaitCredit(t *testing.T, nodes ...*fakeNode) {
	t.Helper()
	for _, n := range nodes {
		c.waitFor(t, "the first credit request to be answered", func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.answered > 0
		})
	}
}

// offered counts the offers with jobs.
func (f *fakeNode) offered() (offered int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, offer := range f.offers {
		if len(offer.Jobs) > 0 {
			offered++
		}
	}
	return offered
}

// jobsOffered returns the ids of all offered jobs. A job that was not claimed in time
// appears more than once.
func (f *fakeNode) jobsOffered() (ids []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, offer := range f.offers {
		for _, some := range offer.Jobs {
			ids = append(ids, some...)
		}
	}
	return ids
}

// listenForOffers returns a function that returns the next offer of jobs and its node. A
// single connection receives the offers of all nodes in the order in which they were
// sent.
func (c *cluster) listenForOffers(t *testing.T, nodes ...*fakeNode) (next func() (*fakeNode, []int64)) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), c.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	channels := map[string]*fakeNode{}
	for _, n := range nodes {
		channel := wire.OfferChannel(schema, n.node.Incarnation)
		channels[channel] = n
		if _, err := conn.Exec(t.Context(), "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			t.Fatal(err)
		}
	}
	return func() (*fakeNode, []int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		defer cancel()
		for {
			note, err := conn.WaitForNotification(ctx)
			if err != nil {
				t.Fatal(err)
			}
			offer, err := wire.Unmarshal[wire.Offer](note.Payload)
			if err != nil {
				t.Fatal(err)
			}
			if len(offer.Jobs) > 0 {
				return channels[note.Channel], offer.Jobs["default"]
			}
		}
	}
}
