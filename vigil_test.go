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

// An idle cluster is not judged; a changed one is, until somebody could.
func TestVigilJudgesChangesOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		judgements, judged, failure := 0, true, error(nil)
		var again atomic.Int32
		v := &vigil{
			judge: func(context.Context) (bool, error) { judgements++; return judged, failure },
			again: func() { again.Add(1) },

			pending: make(chan struct{}, 1),
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = v.run(ctx) }() // has no errors
		leader := leaderstore.Leader{Role: "scheduler", NodeID: "a", LeaseUntil: began.Add(time.Hour)}
		node := nodestore.Node{NodeID: "a", State: nodestore.Active, StartedAt: began}
		look := func(want int, why string) {
			t.Helper()
			leader.Now = time.Now()
			err := v.look(t.Context(), []leaderstore.Leader{leader}, []nodestore.Node{node})
			if !errors.Is(err, failure) || judgements != want {
				t.Fatalf("%s: judged %d times, %v; want %d", why, judgements, err, want)
			}
		}
		look(1, "the first look")
		look(1, "nothing new")
		node.State = nodestore.Dead
		judged = false
		look(2, "a dead node, while another transaction judges")
		failure = errors.New("connection broken")
		look(3, "and again")
		judged, failure = true, nil
		look(4, "and again")
		look(4, "nothing new")
		node.State = nodestore.Active
		look(5, "it came back")
		leader.NodeID, leader.LeaseUntil = "", time.Now()
		look(6, "vacant")
		time.Sleep(leaderlessFor)
		synctest.Wait()
		if again.Load() != 1 {
			t.Fatalf("looked again %d times", again.Load())
		}
		look(7, "vacant for long")
		time.Sleep(time.Hour)
		look(7, "nothing new")
		if again.Load() != 1 {
			t.Fatalf("looked again %d times", again.Load())
		}
	})
}

// A look around that is due ends with the node.
func TestVigilEndsWithItsNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		again := 0
		v := &vigil{
			judge: func(context.Context) (bool, error) { return true, nil },
			again: func() { again++ }, pending: make(chan struct{}, 1),
		}
		vacant := leaderstore.Leader{Role: "scheduler", LeaseUntil: time.Now(), Now: time.Now()}
		if err := v.look(t.Context(), []leaderstore.Leader{vacant}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := v.run(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if again != 0 {
			t.Errorf("looked around %d times after the end", again)
		}
	})
}

// A role that node.roles bars from every node stays vacant, and the diary says
// what that means.
func TestBarredRoleIsNotLedAndDegradesTheCluster(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	// The cluster is old enough for a vacant role to count.
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
	soon(t, "the cluster is degraded", counts(`SELECT count(*) FROM forge_events
		WHERE type = 'cluster_degraded' AND data -> 'causes' ? 'nobody leads log_compactor'`))
	soon(t, "a scheduler leads", counts(`SELECT count(*) FROM forge_leaders WHERE role = 'scheduler' AND node_id = 'a'`))
	soon(t, "the log compactor's role is nobody's", counts(`SELECT count(*) FROM forge_leaders WHERE role = 'log_compactor' AND term = 0`))
}

// What readers see and what the events tell is one judgement: a death that nobody has
// judged yet is in the events once somebody has read it.
func TestReadersAndEventsAgreeOnHealth(t *testing.T) {
	t.Parallel()
	n := &Node{pool: pgtest.Pool(t), logger: slog.New(slog.DiscardHandler)}
	n.vigil = n.newVigil()
	for _, step := range []struct{ sql, cause, event string }{
		{`INSERT INTO forge_nodes (node_id, incarnation, state) VALUES ('b', '00000000000000bb', 'dead')`, "node b is dead", "cluster_degraded"},
		{`DELETE FROM forge_nodes`, "", "cluster_recovered"},
	} {
		if _, err := n.pool.Exec(t.Context(), step.sql); err != nil {
			t.Fatal(err)
		}
		causes, err := healthReader{n}.Causes(t.Context())
		if err != nil || strings.Join(causes, ", ") != step.cause {
			t.Errorf("causes %q, %v; want %q", causes, err, step.cause)
		}
		var event string
		if err := n.pool.QueryRow(t.Context(), `SELECT type FROM forge_events ORDER BY id DESC LIMIT 1`).Scan(&event); err != nil || event != step.event {
			t.Errorf("the newest event is %q, %v; want %q", event, err, step.event)
		}
	}
}
