package roles_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// silentReset is a session on which the server does not answer ResetIdleTimeout.
type silentReset struct {
	roles.Session

	resets *atomic.Int32
}

func (s silentReset) ResetIdleTimeout(ctx context.Context) error {
	s.resets.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// startWithSilentReset runs elections of the scheduler role on sessions of which only the
// first one does not answer ResetIdleTimeout.
func startWithSilentReset(t *testing.T) (es *roles.Elections, opened, resets *atomic.Int32, stop func() error) {
	t.Helper()
	opened, resets = new(atomic.Int32), new(atomic.Int32)
	s := newServer()
	opts := s.options("a", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Unwatched(func(ctx context.Context, _ leaderstore.Fence) error {
		<-ctx.Done()
		return nil
	})})
	open := opts.OpenSession
	opts.OpenSession = func(ctx context.Context) (roles.Session, error) {
		session, err := open(ctx)
		if opened.Add(1) == 1 {
			session = silentReset{session, resets}
		}
		return session, err
	}
	es = roles.NewElections(opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- es.Run(ctx) }()
	synctest.Wait()
	if _, leads := es.Leads(roles.Scheduler); !leads {
		t.Fatal("the node does not lead")
	}
	return es, opened, resets, func() error { cancel(); return <-done }
}

// A node opens another session after a lease if the server does not answer the statement that
// follows the last resignation.
func TestSessionIsReplacedIfServerIsSilentAfterResignation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		es, opened, resets, stop := startWithSilentReset(t)
		if err := es.StepDown(t.Context(), roles.Scheduler); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lease - time.Millisecond)
		synctest.Wait()
		if opened.Load() != 1 || resets.Load() != 1 {
			t.Errorf("%d sessions, %d resets before the lease is over; want 1 and 1", opened.Load(), resets.Load())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if opened.Load() != 2 {
			t.Errorf("%d sessions were opened; want 2", opened.Load())
		}
		time.Sleep(3 * check) // the back-off
		synctest.Wait()
		if _, leads := es.Leads(roles.Scheduler); !leads {
			t.Error("the node does not lead again")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A node that stops does not wait for a statement that its next session does not need.
func TestSilentServerDoesNotDelayStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, _, resets, stop := startWithSilentReset(t)
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 || resets.Load() != 0 {
			t.Errorf("the node took %s and sent %d resets", took, resets.Load())
		}
	})
}
