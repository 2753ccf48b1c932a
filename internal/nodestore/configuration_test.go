package nodestore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestReconfigure(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	register(t, pool, nodestore.Node{NodeID: "a", Incarnation: first, Slots: 5, ConfigHash: "one"})
	edited := nodestore.Node{
		NodeID: "a", Incarnation: first, Slots: 7, ConfigHash: "two", Kinds: []string{"k"}, Queues: map[string]int{"q": 3}, Reserved: map[string]int{"q": 2},
		RiverKinds: map[string]string{"k": "it was added with river.AddWorker"}, Definitions: map[string]string{"k": "d"}, Capabilities: []string{"gpu"}, Tags: map[string]string{"zone": "eu"},
		ConfigRestart: []string{"http.listen"},
	}
	if err := nodestore.New(pool).RejectConfig(t.Context(), edited, "2 errors", []string{"x", "y"}); err != nil {
		t.Fatal(err)
	}
	if n := get(t, pool); n.ConfigError != "2 errors" || n.ConfigHash != "one" || n.Slots != 5 {
		t.Errorf("a refused file changed the node: %+v", n)
	}
	if err := nodestore.New(pool).Reconfigure(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	want := edited
	n := get(t, pool)
	want.Observed = nodestore.Active
	want.State, want.StartedAt, want.LastHeartbeatAt, want.Now, want.Roles = nodestore.Active, n.StartedAt, n.LastHeartbeatAt, n.Now, []string{}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	wantEvents(t, pool, eventstore.NodeJoined, eventstore.ConfigRejected, eventstore.ConfigReloaded)
	events, err := eventstore.New(pool).Find(t.Context(), eventstore.Filter{Limit: 2})
	if err != nil || !strings.Contains(string(events[0].Data), "http.listen") || !strings.Contains(string(events[1].Data), `["x", "y"]`) {
		t.Errorf("events %+v, %v", events, err)
	}
	if !fence(t, pool) {
		t.Fatal("not fenced")
	}
	if err := nodestore.New(pool).Reconfigure(t.Context(), edited); !errors.Is(err, nodestore.ErrFenced) {
		t.Errorf("a fenced node reconfigures: %v", err)
	}
	if err := nodestore.New(pool).RejectConfig(t.Context(), edited, "x", nil); !errors.Is(err, nodestore.ErrFenced) {
		t.Errorf("a fenced node reports: %v", err)
	}
}

func get(t *testing.T, pool *pgxpool.Pool) nodestore.Node {
	t.Helper()
	node, err := nodestore.New(pool).Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return node
}
