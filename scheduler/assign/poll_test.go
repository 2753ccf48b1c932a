package assign_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// Without notifications, the leader still finds jobs, nodes and credit, and sends messages
// as messages.
func TestAssignsWithoutNotifications(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 7)
	assigner, err := assign.New(assign.Options{
		Pool: c.pool, Metrics: c.metrics, Logger: slog.New(slog.DiscardHandler), Schema: schema, PollInterval: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- assigner.Lead(ctx, fence) }()
	node := nodestore.Node{
		NodeID: "a", Incarnation: "00000000000000aa", Kinds: []string{"k"}, Queues: map[string]int{"default": 3}, Slots: 3,
	}
	if err := nodestore.Register(t.Context(), c.pool, node, nodestore.Policy{}); err != nil {
		t.Fatal(err)
	}
	c.exec(t, `INSERT INTO river_job (kind, queue, args) SELECT 'k', 'default', '{}' FROM generate_series(1, 5)`)
	var offered []int64
	c.waitFor(t, "an offer of as many jobs as the node can take", func() bool {
		offered = append(offered, answerMessages(t, c, node)...)
		return len(offered) >= 3
	})
	slices.Sort(offered)
	if len(slices.Compact(offered)) != 3 {
		t.Errorf("offered %v; want three jobs", offered)
	}
	c.makeLeader(t, 8)
	if err := <-done; !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("Lead of an old term = %v, want ErrDeposed", err)
	}
	if refused := c.refused(); refused != 1 {
		t.Errorf("%v refused writes are counted, want 1", refused)
	}
}

// answerMessages takes the node's messages, reports its credit and returns the offered
// jobs.
func answerMessages(t *testing.T, c *cluster, node nodestore.Node) (ids []int64) {
	t.Helper()
	messages, err := postgres.TakeMessages(t.Context(), c.pool, wire.OfferChannel(schema, node.Incarnation))
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range messages {
		offer, err := wire.Unmarshal[wire.Offer](message)
		if err != nil {
			t.Fatal(err)
		}
		if offer.Term != 7 {
			t.Errorf("offered in term %d", offer.Term)
		}
		ids = append(ids, offer.Jobs["default"]...)
		free := max(0, node.Slots-len(ids))
		credit := wire.Credit{
			NodeID: node.NodeID, Incarnation: node.Incarnation, Term: offer.Term, Seen: offer.Seq,
			Slots: free, Free: map[string]int{"default": free},
		}
		if err := postgres.SendMessage(t.Context(), c.pool, wire.Channel(schema, wire.CreditChannel), wire.Marshal(credit)); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}
