package roles_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

func TestOneOfThreeNodesLeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		nodes := []*node{startNode(t, s, "a"), startNode(t, s, "b"), startNode(t, s, "c")}
		for range 20 {
			time.Sleep(refresh)
			synctest.Wait()
			if n := working(nodes); n != 1 {
				t.Fatalf("%d leaders", n)
			}
		}
		if s.terms["scheduler"] != 1 {
			t.Fatalf("term %d without a disturbance", s.terms["scheduler"])
		}
	})
}

func TestResignedRoleIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		a.stop()
		<-a.done
		synctest.Wait() // no time passes: the standby was notified
		if !b.works() || a.works() || s.leader() != "b" {
			t.Fatalf("a works %v, b works %v", a.works(), b.works())
		}
		if !slices.Equal(s.resigned, []string{"scheduler resigned"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
	})
}

func TestBrokenSessionStopsWorkAndElectsAnotherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		s.mu.Lock()
		s.down = true // a cannot reconnect before b has tried the lock
		s.mu.Unlock()
		s.sever("a")
		synctest.Wait()
		if a.works() {
			t.Fatal("the work continues without a session")
		}
		time.Sleep(check + check/5)
		synctest.Wait()
		if !b.works() {
			t.Fatal("no successor after a check interval")
		}
	})
}

// A leader whose renewals hang stops its work before the lease ends, so before the server
// frees its lock.
func TestHungRenewalStopsWorkWithinLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		time.Sleep(10 * refresh)
		synctest.Wait()
		s.stall("a")
		time.Sleep(lease * 4 / 5)
		synctest.Wait()
		if a.works() {
			t.Fatal("the leader works on after its trust window")
		}
		if _, leads := a.Leads(roles.Scheduler); leads {
			t.Fatal("Leads still returns true")
		}
	})
}

func TestReplacedTermStopsWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		synctest.Wait()
		s.mu.Lock()
		s.rows["scheduler"], s.down = nil, true
		s.mu.Unlock()
		time.Sleep(refresh + time.Millisecond)
		synctest.Wait()
		if a.works() {
			t.Fatal("a works although the database no longer names it as the leader")
		}
	})
}

// A node that leads several roles, and whose row of one role is deleted, gives up that
// role, acquires it again in a new term, and continues to lead the others.
func TestDeletedRowEndsOnlyThatRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		begun := map[string]int{}
		work := func(ctx context.Context, fence leaderstore.Fence) error {
			s.mu.Lock()
			begun[fence.Role]++
			s.mu.Unlock()
			<-ctx.Done()
			return nil
		}
		stop := start(t, s.options("a",
			roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(work)}, roles.RoleConfig{Role: roles.LogCompactor, LockID: 2, Lead: roles.Watched(work)}))
		synctest.Wait()
		s.mu.Lock()
		s.rows["log_compactor"] = nil
		s.mu.Unlock()
		time.Sleep(refresh + 2*check)
		synctest.Wait()
		s.mu.Lock()
		if begun["scheduler"] != 1 || begun["log_compactor"] != 2 || len(s.sessions) != 1 {
			t.Errorf("terms %v over %d sessions", begun, len(s.sessions))
		}
		s.mu.Unlock()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFailedWorkMovesRoleToAnotherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		a.fail <- errors.New("out of order")
		synctest.Wait()
		if a.works() || !b.works() {
			t.Fatalf("a works %v, b works %v", a.works(), b.works())
		}
		if !slices.Equal(s.resigned, []string{"scheduler stepped_down"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
	})
}

// Work that ends its goroutine has failed.
func TestWorkThatEndsItsGoroutineMovesRoleToAnotherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		close(a.exit)
		synctest.Wait()
		if a.works() || !b.works() {
			t.Fatalf("a works %v, b works %v", a.works(), b.works())
		}
		if !slices.Equal(s.resigned, []string{"scheduler stepped_down"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
		time.Sleep(5 * check) // a is a candidate again
		b.fail <- errors.New("out of order")
		synctest.Wait()
		if s.leader() != "a" {
			t.Fatalf("%q leads", s.leader())
		}
	})
}

func TestOnlyNodeLeadsAgainAfterFailedWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		synctest.Wait()
		a.fail <- errors.New("out of order")
		synctest.Wait()
		time.Sleep(5 * check)
		synctest.Wait()
		if !a.works() || s.terms["scheduler"] != 2 {
			t.Fatalf("works %v in term %d", a.works(), s.terms["scheduler"])
		}
	})
}

func TestElectionsRecoverAfterDatabaseOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		synctest.Wait()
		s.mu.Lock()
		s.down = true
		s.mu.Unlock()
		s.sever("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if a.works() {
			t.Fatal("works without a database")
		}
		s.mu.Lock()
		s.down = false
		s.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if !a.works() {
			t.Fatal("does not lead a second after the database returned")
		}
	})
}

// Run returns no error for a node that is stopped during an outage long after its work has
// ended.
func TestRunReturnsNoErrorDuringOutage(t *testing.T) {
	t.Parallel()
	for range 20 { // the failure was intermittent
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			a := startNode(t, s, "a")
			synctest.Wait()
			s.mu.Lock()
			s.down = true
			s.mu.Unlock()
			s.sever("a")
			time.Sleep(time.Minute)
			a.stop()
			<-a.done
		})
	}
}

// A node without roles still uses its session: the server would end a silent session, and
// other nodes see by the session that the node is alive.
func TestNodeWithoutRolesKeepsSessionAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		stop := start(t, s.options("a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		spoke := s.lockAttempts
		s.mu.Unlock()
		if spoke < 50 {
			t.Errorf("%d statements in a minute; want about 60", spoke)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Changes before the session was opened were not notified on it, so each new session calls
// OnChange.
func TestOnChangeIsCalledForEverySession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var changes atomic.Int32
		opts := s.options("a")
		opts.OnChange = func() { changes.Add(1) }
		stop := start(t, opts)
		synctest.Wait()
		if changes.Load() != 1 {
			t.Errorf("OnChange was called %d times after the first session", changes.Load())
		}
		s.sever("a")
		time.Sleep(time.Second)
		synctest.Wait()
		if changes.Load() != 3 { // once for the loss, once for the new session
			t.Errorf("OnChange was called %d times after the second session", changes.Load())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Run ends with an error if the database cannot hold an election session.
func TestUnfitDatabaseEndsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opts := newServer().options("a")
		opts.OpenSession = func(context.Context) (roles.Session, error) { return nil, leaderstore.ErrUnfit }
		if err := roles.NewElections(opts).Run(t.Context()); !errors.Is(err, leaderstore.ErrUnfit) {
			t.Errorf("got %v", err)
		}
	})
}
