package forge

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// The health of an unchanged cluster is not evaluated. After a change it is, until an
// evaluation succeeds.
func TestHealthWatcherEvaluatesOnlyChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		evaluations, evaluated, failure := 0, true, error(nil)
		var rechecks atomic.Int32
		w := &healthWatcher{
			evaluate: func(context.Context) (bool, error) { evaluations++; return evaluated, failure },
			recheck:  func() { rechecks.Add(1) },

			pending: make(chan struct{}, 1),
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = w.run(ctx) }() // returns no errors
		leader := leaderstore.Leader{Role: "scheduler", NodeID: "a", LeaseUntil: began.Add(time.Hour)}
		node := nodestore.Node{NodeID: "a", State: nodestore.Active, StartedAt: began}
		update := func(want int, why string) {
			t.Helper()
			leader.Now = time.Now()
			err := w.update(t.Context(), []leaderstore.Leader{leader}, []nodestore.Node{node})
			if !errors.Is(err, failure) || evaluations != want {
				t.Fatalf("%s: evaluated %d times, %v; want %d", why, evaluations, err, want)
			}
		}
		update(1, "the first update")
		update(1, "nothing new")
		node.State = nodestore.Dead
		evaluated = false
		update(2, "a dead node, while another transaction evaluates")
		failure = errors.New("connection broken")
		update(3, "a retry")
		evaluated, failure = true, nil
		update(4, "a retry")
		update(4, "nothing new")
		node.State = nodestore.Active
		update(5, "it came back")
		leader.NodeID, leader.LeaseUntil = "", time.Now()
		update(6, "vacant")
		time.Sleep(leaderlessFor)
		synctest.Wait()
		if rechecks.Load() != 1 {
			t.Fatalf("rechecked %d times", rechecks.Load())
		}
		update(7, "vacant for long")
		time.Sleep(time.Hour)
		update(7, "nothing new")
		if rechecks.Load() != 1 {
			t.Fatalf("rechecked %d times", rechecks.Load())
		}
	})
}

// A pending check ends with the node.
func TestHealthWatcherStopsWithNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rechecks := 0
		w := &healthWatcher{
			evaluate: func(context.Context) (bool, error) { return true, nil },
			recheck:  func() { rechecks++ }, pending: make(chan struct{}, 1),
		}
		vacant := leaderstore.Leader{Role: "scheduler", LeaseUntil: time.Now(), Now: time.Now()}
		if err := w.update(t.Context(), []leaderstore.Leader{vacant}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.run(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if rechecks != 0 {
			t.Errorf("rechecked %d times after the end", rechecks)
		}
	})
}

// A role that node.roles excludes on every node remains vacant, and the event log reports
// its consequence.
func TestRoleExcludedOnEveryNodeDegradesCluster(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	// The cluster must be old enough for a vacant role to count.
	if _, err := pool.Exec(t.Context(), `INSERT INTO forge_nodes (node_id, incarnation, started_at)
		VALUES ('old', '00000000000000aa', now() - interval '1 h')`); err != nil {
		t.Fatal(err)
	}
	runNode(t, url, `roles = ["worker", "scheduler"]`)
	counts := func(sql string) func() bool {
		return func() bool {
			var n int
			return pool.QueryRow(t.Context(), sql).Scan(&n) == nil && n == 1
		}
	}
	eventually(t, "the cluster is degraded", counts(`SELECT count(*) FROM forge_events
		WHERE type = 'cluster_degraded' AND data -> 'causes' ? 'nobody leads log_compactor'`))
	eventually(t, "a scheduler leads", counts(`SELECT count(*) FROM forge_leaders WHERE role = 'scheduler' AND node_id = 'a'`))
	eventually(t, "the log compactor's role is vacant", counts(`SELECT count(*) FROM forge_leaders WHERE role = 'log_compactor' AND term = 0`))
}

// Readers and events agree on the health: a death that was not evaluated yet is in the
// events once the health was read.
func TestReadersAndEventsAgreeOnHealth(t *testing.T) {
	t.Parallel()
	n := &Node{pool: pgtest.Pool(t), logger: slog.New(slog.DiscardHandler)}
	n.healthWatcher = n.newHealthWatcher()
	for _, step := range []struct{ sql, cause, event string }{
		{`INSERT INTO forge_nodes (node_id, incarnation, state) VALUES ('b', '00000000000000bb', 'dead')`, "node b is dead", "cluster_degraded"},
		{`DELETE FROM forge_nodes`, "", "cluster_recovered"},
	} {
		if _, err := n.pool.Exec(t.Context(), step.sql); err != nil {
			t.Fatal(err)
		}
		causes, err := n.healthWatcher.Causes(t.Context())
		if err != nil || strings.Join(causes, ", ") != step.cause {
			t.Errorf("causes %q, %v; want %q", causes, err, step.cause)
		}
		var event string
		if err := n.pool.QueryRow(t.Context(), `SELECT type FROM forge_events ORDER BY id DESC LIMIT 1`).Scan(&event); err != nil || event != step.event {
			t.Errorf("the newest event is %q, %v; want %q", event, err, step.event)
		}
	}
}
