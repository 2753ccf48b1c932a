package roles_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// join runs work as a part of a's term of the scheduler role. The work returns lingers
// after its context has ended.
func join(t *testing.T, a *node, lingers time.Duration) (cause <-chan error) {
	t.Helper()
	causes := make(chan error, 1)
	go func() {
		if err := a.Join(t.Context(), roles.Scheduler, func(ctx context.Context, fence leaderstore.Fence) error {
			if fence.Term != 1 {
				t.Errorf("joined term %d", fence.Term)
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			time.Sleep(lingers)
			return nil
		}); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return causes
}

// The context of work that joined a term ends at the same moment as the term, however it
// ends.
func TestJoinedWorkEndsWithTerm(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end   func(s *server, a *node)
		after time.Duration // since the last renewal was sent
	}{
		"session lost":     {func(s *server, _ *node) { s.sever("a") }, 0},
		"database silent":  {func(s *server, _ *node) { s.stall("a") }, roles.TrustWindow(lease)},
		"the work returns": {func(_ *server, a *node) { a.fail <- errors.New("out of order") }, 0},
		"shutdown":         {func(_ *server, a *node) { a.stop() }, 0},
		"drain":            {func(_ *server, a *node) { a.SetDraining(true) }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			a := startNode(t, s, "a")
			time.Sleep(4 * refresh)
			cause := join(t, a, 0)
			test.end(s, a)
			if test.after > 0 {
				time.Sleep(test.after - time.Millisecond)
				synctest.Wait()
				if _, leads := a.Leads(roles.Scheduler); !leads || len(cause) > 0 {
					t.Errorf("%s: over before the trust window: leads %v", name, leads)
				}
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			if _, leads := a.Leads(roles.Scheduler); leads && name != "session lost" {
				t.Errorf("%s: still leads", name)
			}
			select {
			case err := <-cause:
				if !errors.Is(err, leaderstore.ErrDeposed) {
					t.Errorf("%s: ended because of %v", name, err)
				}
			default:
				t.Errorf("%s: the joined work continues", name)
			}
		})
	}
}

// The role is handed over once the joined work has returned or has exceeded its stop
// timeout. Until the work has returned, the node is no candidate for the role.
func TestHandOverWaitsForJoinedWork(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ lingers, waits time.Duration }{
		{time.Second, time.Second},
		{time.Hour, lease},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, a, b := startPair(t)
			join(t, a, test.lingers)
			if err := a.StepDown(t.Context(), roles.Scheduler); err != nil {
				t.Fatal(err)
			}
			if _, leads := a.Leads(roles.Scheduler); leads {
				t.Error("leads after it has stepped down")
			}
			time.Sleep(test.waits - time.Millisecond)
			synctest.Wait()
			if b.works() || len(s.endings()) > 0 {
				t.Errorf("handed over before the work of %v had returned", test.lingers)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if !b.works() {
				t.Errorf("not handed over %v after the step-down", test.waits)
			}
			b.stop()
			time.Sleep(10 * check)
			synctest.Wait()
			if again := a.works(); again != (test.lingers < time.Minute) {
				t.Errorf("a leads again: %v, with work of %v", again, test.lingers)
			}
			time.Sleep(test.lingers)
		})
	}
}

// The context of joined work ends when the LeaderFunc returns. The usual stop timeout
// applies.
func TestJoinedWorkStopsWhenLeaderFuncReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		join(t, a, time.Hour)
		a.fail <- errors.New("out of order")
		time.Sleep(lease + time.Millisecond)
		synctest.Wait()
		if !b.works() || !slices.Equal(s.endings(), []string{"scheduler lease_expired"}) {
			t.Errorf("b works %v, resigned %v", b.works(), s.endings())
		}
		time.Sleep(time.Hour)
	})
}

// Work that joined a term can call StepDown.
func TestStepDownFromWithinWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, a, b := startPair(t)
		err := a.Join(t.Context(), roles.Scheduler, func(ctx context.Context, _ leaderstore.Fence) error {
			return a.StepDown(ctx, roles.Scheduler)
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if a.works() || !b.works() {
			t.Errorf("a works %v, b works %v", a.works(), b.works())
		}
		if err := a.StepDown(t.Context(), roles.Scheduler); !errors.Is(err, roles.ErrNotLeader) {
			t.Errorf("a step-down of a standby: %v", err)
		}
	})
}

// While a node waits for work that its predecessor may have left running, Leads returns
// false.
func TestLeadsIsFalseDuringTakeoverDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		predecessor := make(chan struct{})
		opts := s.options("a", roles.RoleConfig{
			Role: roles.Scheduler, LockID: 1, TakeoverDelay: time.Minute,
			Lead: roles.Unwatched(func(ctx context.Context, _ leaderstore.Fence) error { <-ctx.Done(); return nil }),
		})
		opts.TakeoverWait = func(context.Context, leaderstore.Fence, time.Duration) (time.Duration, error) {
			<-predecessor
			return 0, nil
		}
		elections := roles.NewElections(opts)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- elections.Run(ctx) }()
		synctest.Wait()
		if _, leads := elections.Leads(roles.Scheduler); leads {
			t.Error("leads while the work of a predecessor may be running")
		}
		if err := elections.Join(t.Context(), roles.Scheduler, nil); !errors.Is(err, roles.ErrNotLeader) {
			t.Errorf("joined: %v", err)
		}
		close(predecessor)
		synctest.Wait()
		if _, leads := elections.Leads(roles.Scheduler); !leads {
			t.Error("does not lead")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
