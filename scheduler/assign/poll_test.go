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
	notifier := postgres.NewPollingNotifier(c.pool, 20*time.Millisecond, slog.New(slog.DiscardHandler))
	assigner, err := assign.New(assign.Options{
		Pool: c.pool, Metrics: c.metrics, Logger: slog.New(slog.DiscardHandler), Schema: schema, Notifier: notifier,
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
	if err := nodestore.New(c.pool).Register(t.Context(), node, nodestore.Policy{}); err != nil {
		t.Fatal(err)
	}
	c.exec(t, `INSERT INTO river_job (kind, queue, args) SELECT 'k', 'default', '{}' FROM generate_series(1, 5)`)
	offered := answerOffers(t, notifier, node, 3)
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

// answerOffers answers each offer to the node with its credit, until want jobs are offered.
// It returns the offered jobs.
func answerOffers(t *testing.T, notifier *postgres.Notifier, node nodestore.Node, want int) (ids []int64) {
	t.Helper()
	offers := notifier.Listen(wire.OfferChannel(schema, node.Incarnation))
	defer offers.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := offers.AwaitListening(ctx); err != nil {
		t.Fatal(err)
	}
	for len(ids) < want {
		note, err := offers.WaitForNotification(ctx)
		if err != nil {
			t.Fatalf("offered only %v: %v", ids, err)
		}
		if note.Payload == "" {
			continue
		}
		offer, err := wire.Unmarshal[wire.Offer](note.Payload)
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
		if err := notifier.Notify(ctx, wire.Channel(schema, wire.CreditChannel), wire.Marshal(credit)); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}
