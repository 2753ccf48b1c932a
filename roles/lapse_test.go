package roles_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// A leader whose work waits for a slow database keeps its role, because another node would
// wait for the same database.
func TestSlowStatementKeepsRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		slow := func(ctx context.Context, _ leaderstore.Fence) error {
			for ctx.Err() == nil {
				end := watchdog.Statement(ctx)
				time.Sleep(10 * lease)
				end()
			}
			return nil
		}
		stop := start(t, s.options("a", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(slow), StopTimeout: time.Minute}))
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

// A renewal that is confirmed after the trust window ends the work. If the session and its
// lock still exist, the next term begins on them once the work has stopped, without a
// hand-over.
func TestLateRenewalBeginsNextTermOnSameSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var began, running, most atomic.Int32
		work := func(ctx context.Context, _ leaderstore.Fence) error {
			began.Add(1)
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			watchdog.Sleep(ctx, time.Hour)
			time.Sleep(refresh) // the work takes a while to stop
			return nil
		}
		var changes []roles.TermChange
		opts := s.options("a", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(work)})
		opts.OnTerm = func(change roles.TermChange) { changes = append(changes, change) }
		var slow atomic.Int64 // duration of each renewal in nanoseconds
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
			t.Errorf("changes %+v; want term 1 lost, then term 2 begun", changes)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if resigned := s.endings(); !slices.Equal(resigned, []string{"scheduler resigned"}) {
			t.Errorf("at the end resigned %v", resigned)
		}
	})
}

// A process that was paused for longer than its trust window, but not until the server
// ended its session, leads again in its next term.
func TestShortFreezeBeginsNextTermOnSameSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		work := func(ctx context.Context, _ leaderstore.Fence) error {
			watchdog.Sleep(ctx, time.Hour)
			return nil
		}
		opts := s.options("a", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(work)})
		freeze := &freezeOnce{}
		opts.OpenSession = func(ctx context.Context) (roles.Session, error) {
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

// freezeOnce is a session of a process that is paused once, after a wait.
type freezeOnce struct {
	roles.Session

	next atomic.Int64
}

func (f *freezeOnce) Wait(ctx context.Context) (bool, error) {
	notified, err := f.Session.Wait(ctx)
	time.Sleep(time.Duration(f.next.Swap(0)))
	return notified, err
}

// A shutdown while the role has lapsed waits for the work, and then resigns the role.
func TestShutdownResignsLapsedRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		stopped := make(chan time.Time, 2)
		work := func(ctx context.Context, _ leaderstore.Fence) error {
			watchdog.Sleep(ctx, time.Hour)
			time.Sleep(lease - refresh)
			stopped <- time.Now()
			return nil
		}
		var slow atomic.Int64 // duration of the next renewal in nanoseconds
		s.onRenew = func() { time.Sleep(time.Duration(slow.Swap(0))) }
		stop := start(t, s.options("a", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(work)}))
		time.Sleep(refresh * 3 / 2)
		slow.Store(int64(lease - lease/10))
		time.Sleep(refresh/2 + lease - lease/10 + time.Millisecond) // the late renewal is confirmed
		synctest.Wait()
		if len(stopped) > 0 {
			t.Fatal("the work has stopped before the shutdown")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if ended := <-stopped; !time.Now().Equal(ended) || !slices.Equal(s.endings(), []string{"scheduler resigned"}) || s.terms["scheduler"] != 1 {
			t.Errorf("resigned %v in term %d, %v after the work stopped", s.endings(), s.terms["scheduler"], time.Since(ended))
		}
	})
}
