package handover_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// running is the number of running jobs of each owner.
type running map[string]int

func (r running) RunningByOwner(context.Context, []string) (map[string]int, error) { return r, nil }

func TestDuties(t *testing.T) {
	t.Parallel()
	node := func(id, state string, running int) nodestore.Node {
		return nodestore.Node{NodeID: id, Incarnation: "i", State: state, Running: running}
	}
	leader := leaderstore.Leader{Role: "scheduler", NodeID: "leads", Incarnation: "other", Term: 1}
	leading := nodestore.Node{NodeID: "leads", Incarnation: "other", State: nodestore.Draining}
	nodes := []nodestore.Node{
		node("active", nodestore.Active, 0), node("left", nodestore.Left, 0), node("dead", nodestore.Dead, 0), node("idle", nodestore.Draining, 0),
		node("late", nodestore.Draining, 2), node("early", nodestore.Draining, 0), leading,
	}
	leader.LeaseUntil, leader.Now = time.Unix(10, 0), time.Unix(5, 0)
	got, err := handover.Duties(t.Context(), running{"early-i": 1, "active-i": 1, "leads-other": 3}, nodes, []leaderstore.Leader{leader, {Role: "vacant"}})
	if err != nil {
		t.Fatal(err)
	}
	none := []string{}
	want := map[string]handover.Duty{
		"active": {none, false, "It is not drained."},
		"left":   {none, false, "It does not run."},
		"dead":   {none, false, "It does not run."},
		"idle":   {none, true, "It leads no role and runs no job."},
		"late":   {none, false, "2 jobs run."},
		"early":  {none, false, "1 job runs."},
		"leads":  {[]string{"scheduler"}, false, "3 jobs run, and it leads scheduler."},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("duties (-want +got):\n%s", diff)
	}
}

// A drained node is safe to stop once its jobs have ended and two heartbeats have followed,
// after which no offer from before the drain can be claimed.
func TestAwaitStoppable(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := nodestore.New(pool)
	id := `a'"; --<b>`
	node := nodestore.Node{NodeID: id, Incarnation: "00000000000000aa", Slots: 5}
	if err := store.Register(t.Context(), node, nodestore.Policy{DeadThreshold: time.Hour}); err != nil {
		t.Fatal(err)
	}
	changes := make(chan struct{})
	close(changes) // polls without a pause
	ops := handover.New(pool, func() (<-chan struct{}, func()) { return changes, func() {} })
	await := func(within time.Duration) (notes []string, err error) {
		err = ops.AwaitStoppable(t.Context(), id, within, func(note string) { notes = append(notes, note) })
		return notes, err
	}
	if _, err := await(time.Minute); !refused(err) {
		t.Errorf("a node that is not drained: %v", err)
	}
	if err := store.SetState(t.Context(), id, node.Incarnation, nodestore.Draining); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `INSERT INTO river_job (kind, args, state, max_attempts, attempted_at, attempted_by) VALUES ('k', '{}', 'running', 1, now(), ARRAY[$1])`, node.ClientID())
	const short = 300 * time.Millisecond
	notes, err := await(short)
	if busy, ok := errors.AsType[*handover.BusyError](err); !ok || busy.Note != "1 job runs." || !cmp.Equal(notes, []string{"1 job runs."}) {
		t.Errorf("a job runs: %q, %v", notes, err)
	}
	exec(t, pool, `UPDATE river_job SET state = 'completed', finalized_at = now()`)
	if _, err := await(short); err == nil || !strings.Contains(err.Error(), "has not confirmed") {
		t.Errorf("without a heartbeat: %v", err)
	}
	beating, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for beating.Err() == nil {
			_, _ = store.Heartbeat(beating, id, node.Incarnation, 0) // the test reports it if none succeeds
		}
	}()
	if _, err := await(time.Minute); err != nil {
		t.Errorf("after heartbeats: %v", err)
	}
	stop()
	<-ended
	if err := store.SetState(t.Context(), id, node.Incarnation, nodestore.Left); err != nil {
		t.Fatal(err)
	}
	if _, err := await(time.Minute); err != nil {
		t.Errorf("a node that has left: %v", err)
	}
}

func refused(err error) bool {
	_, ok := errors.AsType[*handover.RefusedError](err)
	return ok
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}
