package roles_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// A leader whose work hangs loses the role to another node even if its session is alive. It
// does not start the work again while the old work hangs.
func TestHungWorkLosesRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		time.Sleep(10 * lease)
		synctest.Wait()
		if !a.works() || b.works() {
			t.Fatal("a leader that reports lost the role")
		}
		a.hang <- struct{}{}
		time.Sleep(lease - time.Millisecond)
		synctest.Wait()
		if b.works() {
			t.Fatal("replaced within the lease")
		}
		time.Sleep(refresh + 2*time.Millisecond)
		synctest.Wait()
		if !b.works() {
			t.Fatal("no node replaced the leader whose work hangs")
		}
		if !slices.Equal(s.resigned, []string{"scheduler lease_expired"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
		b.stop()
		<-b.done
		time.Sleep(10 * check)
		synctest.Wait()
		if leader := s.leader(); leader != "" {
			t.Fatalf("%s leads while its last work still hangs", leader)
		}
		a.hang <- struct{}{}
		time.Sleep(2 * check)
		synctest.Wait()
		if s.leader() != "a" || !a.works() {
			t.Fatal("does not lead again after the work has returned")
		}
	})
}

// Work that stops late, but within the stop timeout, is waited for.
func TestStalledWorkThatStopsLateSteppedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		slow := func(ctx context.Context, _ leaderstore.Fence) error {
			<-ctx.Done()
			time.Sleep(refresh / 2)
			return nil
		}
		stop := start(t, s.options("a", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(slow)}))
		time.Sleep(lease + refresh/2 + time.Millisecond)
		synctest.Wait()
		if !slices.Equal(s.resigned, []string{"scheduler stepped_down"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A process that was paused has lost its trust when it continues. Its work does not count
// as stalled.
func TestFrozenProcessDoesNotCountAsStalledWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var reasons []string
		var log strings.Builder
		hangs := func(ctx context.Context, _ leaderstore.Fence) error {
			<-ctx.Done()
			return nil
		}
		opts := s.options("a", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(hangs)})
		opts.OpenSession = func(ctx context.Context) (roles.Session, error) {
			opened, err := s.open("a")(ctx)
			return frozenSession{opened}, err
		}
		opts.OnTerm = func(change roles.TermChange) { reasons = append(reasons, change.Reason) }
		opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		stop := start(t, opts)
		time.Sleep(2*lease + check)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(reasons) < 2 || reasons[1] != roles.Lost {
			t.Errorf("the first term's end: %q; want %q", reasons, roles.Lost)
		}
		if strings.Contains(log.String(), "has stalled") {
			t.Errorf("the log reports stalled work:\n%s", &log)
		}
	})
}

// frozenSession is a session of a process that is paused for two leases during each wait.
type frozenSession struct{ roles.Session }

func (f frozenSession) Wait(ctx context.Context) (bool, error) {
	time.Sleep(2 * lease)
	return f.Session.Wait(ctx)
}

// Work that hangs blocks neither another role nor a new session.
func TestHungWorkBlocksNoOtherRoleOrSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		release := make(chan struct{})
		began, other := 0, 0
		hangs := func(context.Context, leaderstore.Fence) error {
			began++
			<-release
			return nil
		}
		works := func(ctx context.Context, _ leaderstore.Fence) error {
			other++
			watchdog.Sleep(ctx, time.Hour)
			return nil
		}
		stop := start(t, s.options("a",
			roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(hangs)},
			roles.RoleConfig{Role: roles.LogCompactor, LockID: 2, Lead: roles.Watched(works)}))
		synctest.Wait()
		s.sever("a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if began != 1 || other != 2 {
			t.Fatalf("the hanging work began %d times, the other %d; want 1 and 2", began, other)
		}
		err := stop()
		if err == nil || !strings.Contains(err.Error(), "scheduler does not stop") {
			t.Fatalf("Run() = %v", err)
		}
		close(release)
	})
}
