package roles_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// A leader whose work waits for a slow database keeps its role: another node would
// wait for the same one.
func TestSlowStatementKeepsTheRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		slow := func(ctx context.Context, _ leaderstore.Fence) error {
			for ctx.Err() == nil {
				end := progress.Statement(ctx)
				time.Sleep(10 * lease)
				end()
			}
			return nil
		}
		stop := start(t, s.options("a", roles.Contest{Role: roles.Scheduler, LockID: 1, Duty: slow, Patience: time.Minute}))
		time.Sleep(100 * lease)
		synctest.Wait()
		if resigned := s.endings(); len(resigned) != 0 || s.terms["scheduler"] != 1 {
			t.Fatalf("resigned %v in term %d because of slow statements", resigned, s.terms["scheduler"])
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A renewal that is confirmed after the trust window ends the work, as every renewal
// that is late does. But where the session stands, and with it the lock, the next term
// begins on it as soon as the work has stopped: nothing is handed over.
func TestLateRenewalBeginsTheNextTermOnTheSameSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var began, running, most atomic.Int32
		work := func(ctx context.Context, _ leaderstore.Fence) error {
			began.Add(1)
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			progress.Sleep(ctx, time.Hour)
			time.Sleep(refresh) // it takes a while to stop
			return nil
		}
		var changes []roles.TermChange
		opts := s.options("a", roles.Contest{Role: roles.Scheduler, LockID: 1, Duty: work})
		opts.OnTerm = func(change roles.TermChange) { changes = append(changes, change) }
		var slow atomic.Int64 // how long each renewal takes, in nanoseconds
		s.onRenew = func() { time.Sleep(time.Duration(slow.Load())) }
		stop := start(t, opts)
		time.Sleep(10 * refresh)
		synctest.Wait()
		slow.Store(int64(lease - lease/10))
		time.Sleep(lease + refresh)
		slow.Store(0)
		time.Sleep(2 * lease)
		synctest.Wait()
		if len(s.sessions) != 1 || len(s.endings()) != 0 {
			t.Errorf("%d sessions, resigned %v; want one session, nothing resigned", len(s.sessions), s.endings())
		}
		if began.Load() < 2 || running.Load() != 1 || most.Load() != 1 {
			t.Errorf("the work began %d times, runs %d times, at most %d at once", began.Load(), running.Load(), most.Load())
		}
		want := roles.TermChange{Role: roles.Scheduler, Term: 1, Reason: roles.Lost}
		if len(changes) < 3 || changes[1] != want || !changes[2].Leads || changes[2].Term != 2 {
			t.Errorf("told of %+v; want that term 1 was lost and term 2 begun", changes)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if resigned := s.endings(); !slices.Equal(resigned, []string{"scheduler resigned"}) {
			t.Errorf("at the end resigned %v", resigned)
		}
	})
}

// A process that stood still for longer than its trust window, and not for so long that
// the server ended its session, leads on in its next term.
func TestShortFreezeBeginsTheNextTermOnTheSameSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		work := func(ctx context.Context, _ leaderstore.Fence) error {
			progress.Sleep(ctx, time.Hour)
			return nil
		}
		opts := s.options("a", roles.Contest{Role: roles.Scheduler, LockID: 1, Duty: work})
		freeze := &freezes{}
		opts.Open = func(ctx context.Context) (roles.Session, error) {
			opened, err := s.open("a")(ctx)
			freeze.Session = opened
			return freeze, err
		}
		stop := start(t, opts)
		time.Sleep(10 * refresh)
		freeze.next.Store(int64(lease - lease/10))
		time.Sleep(3 * lease)
		synctest.Wait()
		if len(s.sessions) != 1 || len(s.endings()) != 0 || s.terms["scheduler"] != 2 || s.leader() != "a" {
			t.Errorf("%d sessions, resigned %v, term %d of %q; want the second term on one session",
				len(s.sessions), s.endings(), s.terms["scheduler"], s.leader())
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// freezes is a session whose process stands still once, after a wait.
type freezes struct {
	roles.Session

	next atomic.Int64
}

func (f *freezes) Wait(ctx context.Context) (bool, error) {
	notified, err := f.Session.Wait(ctx)
	time.Sleep(time.Duration(f.next.Swap(0)))
	return notified, err
}
