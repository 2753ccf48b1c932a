package nodestore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	first  = "00000000000000aa"
	second = "00000000000000bb"
)

func TestRegisterRoundTrip(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	want := nodestore.Node{
		NodeID: "a", Incarnation: first, Hostname: "h", PID: 7, Version: "v1", TZData: "2025c", APIURL: "http://h", State: nodestore.Active,
		Roles: []string{"worker"}, Capabilities: []string{"gpu"}, Tags: map[string]string{"zone": "eu"},
		Kinds: []string{"k"}, Queues: map[string]int{"default": 5}, Reserved: map[string]int{"default": 2}, Slots: 50, ConfigHash: "c",
		RiverKinds: map[string]string{"k": "it was added with river.AddWorker"}, Definitions: map[string]string{"k": "d"}, ConfigRestart: []string{},
	}
	register(t, pool, want)
	nodes, err := nodestore.New(pool).Recorded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	clocks := cmpopts.IgnoreFields(nodestore.Node{}, "StartedAt", "LastHeartbeatAt", "Now", "Observed")
	if diff := cmp.Diff([]nodestore.Node{want}, nodes, clocks); diff != "" {
		t.Errorf("List() (-want +got):\n%s", diff)
	}
	if nodes[0].StartedAt.IsZero() || nodes[0].LastHeartbeatAt.After(nodes[0].Now) {
		t.Errorf("times: %+v", nodes[0])
	}
	if _, err := nodestore.New(pool).Get(t.Context(), "b"); !errors.Is(err, nodestore.ErrNotFound) {
		t.Errorf("Get() of an unknown node: %v", err)
	}
	wantEvents(t, pool, eventstore.NodeJoined)
}

func TestDuplicateIDIsRejectedWhileHolderLives(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	register(t, pool, nodestore.Node{NodeID: "a", Incarnation: first, Hostname: "h", PID: 7})
	unlock := lockSession(t, pool)

	ageHeartbeat(t, pool, "a", time.Hour) // silent, but its session is open
	err := tryRegister(t.Context(), pool, second)
	duplicate, ok := errors.AsType[*nodestore.DuplicateIDError](err)
	if !ok || duplicate.PID != 7 || duplicate.Hostname != "h" || duplicate.Incarnation != first || !duplicate.SessionLock {
		t.Fatalf("Register() beside a twin: %v", err)
	}
	unlock()
	if err := tryRegister(t.Context(), pool, second); err != nil {
		t.Fatalf("Register() after the twin has gone: %v", err)
	}
	if _, err := nodestore.New(pool).Heartbeat(t.Context(), "a", first, 0); !errors.Is(err, nodestore.ErrFenced) {
		t.Errorf("Heartbeat() of the replaced incarnation: %v", err)
	}
	if state, err := nodestore.New(pool).Heartbeat(t.Context(), "a", second, 3); err != nil || state != nodestore.Active {
		t.Errorf("Heartbeat() of the new incarnation: %q, %v", state, err)
	}
}

// If processes with the same node id start concurrently, one registers: on a new
// id, and on an id whose process is dead.
func TestOneOfConcurrentRegistrationsWins(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", nodestore.Left} {
		t.Run("after "+before, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			if before != "" {
				register(t, pool, nodestore.Node{NodeID: "a", Incarnation: first})
				if err := nodestore.New(pool).SetState(t.Context(), "a", first, before); err != nil {
					t.Fatal(err)
				}
			}
			if won := registerConcurrently(t, pool); won != 1 {
				t.Errorf("%d processes hold one node id", won)
			}
		})
	}
}

// registerConcurrently makes eight processes register node "a" concurrently and
// returns how many succeeded. The policy ensures that no slow process counts as
// dead.
func registerConcurrently(t *testing.T, pool *pgxpool.Pool) (won int) {
	t.Helper()
	patient := nodestore.Policy{HeartbeatInterval: time.Hour, DeadThreshold: time.Hour}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			node := nodestore.Node{NodeID: "a", Incarnation: fmt.Sprintf("%016x", i)}
			errs[i] = nodestore.New(pool).Register(t.Context(), node, patient)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err == nil {
			won++
		} else if _, ok := errors.AsType[*nodestore.DuplicateIDError](err); !ok {
			t.Errorf("loser got %v", err)
		}
	}
	return won
}

func TestFencedNodeCannotHeartbeatOrReturn(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	register(t, pool, nodestore.Node{NodeID: "a", Incarnation: first})
	if _, err := nodestore.New(pool).Heartbeat(t.Context(), "a", first, 7); err != nil {
		t.Fatal(err)
	}
	if !fence(t, pool) {
		t.Error("Fence() found nothing to fence")
	}
	if fence(t, pool) {
		t.Error("Fence() fenced twice")
	}
	node, err := nodestore.New(pool).Get(t.Context(), "a")
	if err != nil || node.State != nodestore.Dead || node.FencedAt.IsZero() || node.Running != 0 {
		t.Errorf("row of a fenced node: %+v, %v", node, err)
	}
	if _, err := nodestore.New(pool).Heartbeat(t.Context(), "a", first, 0); !errors.Is(err, nodestore.ErrFenced) {
		t.Errorf("Heartbeat() after the fence: %v", err)
	}
	if err := nodestore.New(pool).SetState(t.Context(), "a", first, nodestore.Active); !errors.Is(err, nodestore.ErrFenced) {
		t.Errorf("SetState() after the fence: %v", err)
	}
	if err := tryRegister(t.Context(), pool, first); !errors.Is(err, nodestore.ErrFenced) {
		t.Errorf("Register() of a fenced incarnation: %v", err)
	}
	if err := tryRegister(t.Context(), pool, second); err != nil {
		t.Errorf("Register() after a fenced incarnation: %v", err)
	}
	wantEvents(t, pool, eventstore.NodeJoined, eventstore.NodeDead, eventstore.ClusterDegraded,
		eventstore.NodeJoined, eventstore.ClusterRecovered)
}

func TestNodeThatLeftStaysLeft(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	listener := listen(t, pool)
	register(t, pool, nodestore.Node{NodeID: "a", Incarnation: first})
	for _, state := range []string{nodestore.Draining, nodestore.Left, nodestore.Left} {
		if err := nodestore.New(pool).SetState(t.Context(), "a", first, state); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodestore.New(pool).SetState(t.Context(), "a", first, nodestore.Active); !errors.Is(err, nodestore.ErrFenced) {
		t.Errorf("a node that left came back: %v", err)
	}
	alive, err := nodestore.New(pool).Alive(t.Context())
	if err != nil || len(alive) != 0 {
		t.Errorf("Alive() = %v, %v", alive, err)
	}
	for range 4 { // joined, draining, left, left
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		note, err := listener.WaitForNotification(ctx)
		cancel()
		if err != nil || note.Payload != "a" {
			t.Fatalf("notification: %+v, %v", note, err)
		}
	}
}

func TestAliveReadsClockAndLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	began := time.Now()
	register(t, pool, nodestore.Node{NodeID: "a", Incarnation: first})
	register(t, pool, nodestore.Node{NodeID: "b", Incarnation: second})
	lockSession(t, pool)
	holdSharedLock(t, pool)
	ageHeartbeat(t, pool, "b", 90*time.Second)
	alive, err := nodestore.New(pool).Alive(t.Context())
	if err != nil || len(alive) != 2 {
		t.Fatalf("Alive() = %v, %v", alive, err)
	}
	most := time.Since(began)
	if a := alive[0]; !a.SessionLock || a.HeartbeatAge < 0 || a.HeartbeatAge > most {
		t.Errorf("locked, fresh node: %+v", a)
	}
	if b := alive[1]; b.SessionLock || b.HeartbeatAge < 90*time.Second || b.HeartbeatAge > 90*time.Second+most {
		t.Errorf("unlocked, silent node: %+v", b)
	}
}

func register(t *testing.T, pool *pgxpool.Pool, node nodestore.Node) {
	t.Helper()
	if err := nodestore.New(pool).Register(t.Context(), node, nodestore.Policy{}); err != nil {
		t.Fatal(err)
	}
}

func tryRegister(ctx context.Context, pool *pgxpool.Pool, incarnation string) error {
	return nodestore.New(pool).Register(ctx, nodestore.Node{NodeID: "a", Incarnation: incarnation}, nodestore.Policy{})
}

func fence(t *testing.T, pool *pgxpool.Pool) (fenced bool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		fenced, err = nodestore.New(tx).Fence(t.Context(), first)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fenced
}

// lockSession holds the first incarnation's session lock until the returned
// function is called or the test ends.
func lockSession(t *testing.T, pool *pgxpool.Pool) (unlock func()) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	class, object := nodestore.SessionLock(first)
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock($1, $2)", class, object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return func() {
		if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock($1, $2)", class, object); err != nil {
			t.Fatal(err)
		}
	}
}

// holdSharedLock holds the second incarnation's lock in shared mode, as a deputy
// does for a moment when it is granted.
func holdSharedLock(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	class, object := nodestore.SessionLock(second)
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock_shared($1, $2)", class, object); err != nil {
		t.Fatal(err)
	}
}

func listen(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	name := pgx.Identifier{wire.Channel("public", wire.NodeChannel)}.Sanitize()
	if _, err := conn.Exec(t.Context(), "LISTEN "+name); err != nil {
		t.Fatal(err)
	}
	return conn
}

func ageHeartbeat(t *testing.T, pool *pgxpool.Pool, nodeID string, by time.Duration) {
	t.Helper()
	_, err := pool.Exec(t.Context(),
		"UPDATE forge_nodes SET last_heartbeat_at = clock_timestamp() - $2::interval WHERE node_id = $1", nodeID, by)
	if err != nil {
		t.Fatal(err)
	}
}

func wantEvents(t *testing.T, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	events, err := eventstore.New(pool).Find(t.Context(), eventstore.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, event := range slices.Backward(events) {
		got = append(got, event.Type)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A node is reporting while its last report is at most three intervals old and from
// its own process.
func TestReportingRequiresRecentOwnMetrics(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	register(t, pool, nodestore.Node{NodeID: "a", Incarnation: first})
	want := func(what string, reporting, ever bool) {
		t.Helper()
		if n := get(t, pool); n.Reporting != reporting || n.ReportedAt.IsZero() == ever {
			t.Errorf("%s: reporting %v, last at %v", what, n.Reporting, n.ReportedAt)
		}
	}
	set := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	want("no report yet", false, false)
	set(`INSERT INTO forge_metrics_nodes (node_id, incarnation, samples, every) VALUES ('a', $1, '{}', '1 hour')`, first)
	want("just now", true, true)
	set(`UPDATE forge_metrics_nodes SET at = clock_timestamp() - interval '179 minutes'`)
	want("late", true, true)
	set(`UPDATE forge_metrics_nodes SET at = clock_timestamp() - interval '181 minutes'`)
	want("three are missing", false, true)
	set(`UPDATE forge_metrics_nodes SET at = clock_timestamp(), incarnation = 'another'`)
	want("an earlier process reported", false, false)
	set(`UPDATE forge_metrics_nodes SET incarnation = $1`, first)
	set(`UPDATE forge_nodes SET state = 'dead'`)
	want("dead", false, true)
}

// Readers see a node as dead once it was silent for its own dead threshold.
// Functions that act on nodes see the recorded state. A node that left stays left.
func TestReadersSeeSilentNodesAsDead(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for id, threshold := range map[string]time.Duration{"brief": time.Minute, "patient": time.Hour, "gone": time.Minute} {
		node := nodestore.Node{NodeID: id, Incarnation: fmt.Sprintf("%016x", len(id))}
		if err := nodestore.New(pool).Register(t.Context(), node, nodestore.Policy{DeadThreshold: threshold}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodestore.New(pool).SetState(t.Context(), "gone", fmt.Sprintf("%016x", len("gone")), nodestore.Left); err != nil {
		t.Fatal(err)
	}
	states := func(list func(context.Context) ([]nodestore.Node, error)) map[string]string {
		nodes, err := list(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]string{}
		for _, n := range nodes {
			states[n.NodeID] = n.State
		}
		return states
	}
	recorded := map[string]string{"brief": nodestore.Active, "patient": nodestore.Active, "gone": nodestore.Left}
	if diff := cmp.Diff(recorded, states(nodestore.New(pool).List)); diff != "" {
		t.Errorf("after the heartbeat (-want +got):\n%s", diff)
	}
	for id := range recorded {
		ageHeartbeat(t, pool, id, 17*time.Minute)
	}
	if diff := cmp.Diff(recorded, states(nodestore.New(pool).Recorded)); diff != "" {
		t.Errorf("as recorded (-want +got):\n%s", diff)
	}
	observed := map[string]string{"brief": nodestore.Dead, "patient": nodestore.Active, "gone": nodestore.Left}
	if diff := cmp.Diff(observed, states(nodestore.New(pool).List)); diff != "" {
		t.Errorf("as readers see it (-want +got):\n%s", diff)
	}
	if node, err := nodestore.New(pool).Get(t.Context(), "brief"); err != nil || node.State != nodestore.Dead {
		t.Errorf("Get() of a silent node: %s, %v", node.State, err)
	}
}
