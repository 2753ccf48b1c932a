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

func TestOneOfThreeLeads(t *testing.T) {
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
			t.Fatalf("term %d after a calm time", s.terms["scheduler"])
		}
	})
}

func TestResigningLeaderIsSucceededAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		a.stop()
		<-a.done
		synctest.Wait() // no time passes: the standby was told
		if !b.works() || a.works() || s.leader() != "b" {
			t.Fatalf("a works %v, b works %v", a.works(), b.works())
		}
		if !slices.Equal(s.resigned, []string{"scheduler resigned"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
	})
}

func TestBrokenSessionStopsTheWorkAndElectsAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		s.mu.Lock()
		s.down = true // a cannot come back before b has looked
		s.mu.Unlock()
		s.sever("a")
		synctest.Wait()
		if a.works() {
			t.Fatal("the work goes on without a session")
		}
		time.Sleep(check + check/5)
		synctest.Wait()
		if !b.works() {
			t.Fatal("no successor after a check interval")
		}
	})
}

// A leader whose renewals hang stops itself inside the lease, so before the
// server frees its lock.
func TestTrustEndsBeforeTheLease(t *testing.T) {
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
			t.Fatal("the leader still says that it leads")
		}
	})
}

func TestReplacedTermStopsTheWork(t *testing.T) {
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
			t.Fatal("the database no longer names a, and a works on")
		}
	})
}

// A node whose row of one role is deleted gives up that role, takes it again with a new
// term, and goes on leading its other roles.
func TestDeletedRowEndsOneRole(t *testing.T) {
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
			roles.Contest{Role: roles.Scheduler, LockID: 1, Duty: work}, roles.Contest{Role: roles.LogCompactor, LockID: 2, Duty: work}))
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

func TestFailedWorkGivesTheRoleToAnother(t *testing.T) {
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

func TestAloneAfterFailedWorkTriesAgain(t *testing.T) {
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

func TestDatabaseOutageHealsByItself(t *testing.T) {
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

// TestNodeStopsInOrderDuringAnOutage stops nodes whose work ended with the session long ago:
// their Run returns no error.
func TestNodeStopsInOrderDuringAnOutage(t *testing.T) {
	t.Parallel()
	for range 20 { // the wrong answer came by chance
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

// A node that stands for nothing still speaks: the server would end a silent
// session, and with it the sign that the node lives.
func TestNodeWithoutRolesKeepsItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		stop := start(t, s.options("a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		spoke := s.tries
		s.mu.Unlock()
		if spoke < 50 {
			t.Errorf("spoke %d times in a minute; want about 60", spoke)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What changed before the session was opened was announced to others only.
func TestLooksAroundWithEverySession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var changes atomic.Int32
		opts := s.options("a")
		opts.OnChange = func() { changes.Add(1) }
		stop := start(t, opts)
		synctest.Wait()
		if changes.Load() != 1 {
			t.Errorf("looked around %d times after the first session", changes.Load())
		}
		s.sever("a")
		time.Sleep(time.Second)
		synctest.Wait()
		if changes.Load() != 3 { // the loss, and the next one
			t.Errorf("looked around %d times after the second session", changes.Load())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A database that cannot hold an election session is not tried for ever.
func TestUnfitDatabaseEndsTheCampaign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opts := newServer().options("a")
		opts.Open = func(context.Context) (roles.Session, error) { return nil, leaderstore.ErrUnfit }
		if err := roles.New(opts).Run(t.Context()); !errors.Is(err, leaderstore.ErrUnfit) {
			t.Errorf("got %v", err)
		}
	})
}
