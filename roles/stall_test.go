package roles_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// A leader whose session lives and whose work hangs loses the role to another,
// and does not begin the work a second time while the first still hangs.
func TestHangingWorkLosesTheRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		synctest.Wait()
		b := startNode(t, s, "b")
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
			t.Fatal("nobody replaced the leader whose work hangs")
		}
		if !slices.Equal(s.resigned, []string{"scheduler lease_expired"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
		b.stop()
		<-b.done
		time.Sleep(10 * check)
		synctest.Wait()
		if leader := s.leader(roles.Scheduler); leader != "" {
			t.Fatalf("%s leads while its last work still hangs", leader)
		}
		a.hang <- struct{}{}
		time.Sleep(2 * check)
		synctest.Wait()
		if s.leader(roles.Scheduler) != "a" || !a.works() {
			t.Fatal("does not stand again after the work has returned")
		}
	})
}

// Work that stops when it is told to, if late, is waited for.
func TestStalledWorkThatStopsSteppedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		deaf := func(ctx context.Context, _ leaderstore.Fence) error {
			<-ctx.Done()
			time.Sleep(refresh / 2)
			return nil
		}
		stop := startDuties(t, s, "a", roles.Contest{Role: roles.Scheduler, LockID: 1, Duty: deaf})
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

// Neither another role nor a new session waits for work that hangs.
func TestHangingWorkKeepsNobodyElseWaiting(t *testing.T) {
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
			progress.Sleep(ctx, time.Hour)
			return nil
		}
		stop := startDuties(t, s, "a",
			roles.Contest{Role: roles.Scheduler, LockID: 1, Duty: hangs},
			roles.Contest{Role: roles.LogCompactor, LockID: 2, Duty: works})
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

// startDuties runs a campaign; stop ends it and returns what Run did.
func startDuties(t *testing.T, s *server, id string, contests ...roles.Contest) (stop func() error) {
	t.Helper()
	c := roles.New(roles.Options{
		NodeID: id, Open: s.open(id), CheckInterval: check, LeaseDuration: lease, RefreshInterval: refresh,
		Contests: contests, Metrics: metrics.New("test"), Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}
