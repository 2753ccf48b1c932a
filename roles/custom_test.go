package roles_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

func TestCustomLockIDs(t *testing.T) {
	t.Parallel()
	seen := map[int64]string{}
	note := func(name string, id int64, err error) {
		t.Helper()
		if err != nil || id <= 0 {
			t.Fatalf("%s: %d, %v", name, id, err)
		}
		if other, taken := seen[id]; taken {
			t.Fatalf("%s and %s share lock %#x", name, other, id)
		}
		seen[id] = name
	}
	for namespace := range 3 {
		for _, role := range roles.All() {
			id, err := role.LockID(namespace)
			note(string(role), id, err)
		}
		for _, name := range []string{"a", "billing", "billing2", "nightly_report", strings.Repeat("x", 63)} {
			id, err := roles.CustomLockID(name, 0, namespace)
			note(name, id, err)
			if id>>55&1 != 1 {
				t.Errorf("%s: lock %#x is in the range of the built-in roles", name, id)
			}
		}
	}
	if id, err := roles.CustomLockID("billing", 42, 1); err != nil || id != 42+1<<56 {
		t.Errorf("configured lock id in namespace 1: %#x, %v", id, err)
	}
	if id, err := roles.CustomLockID("billing", 0, 0); err != nil || id != 0x95c7ece1ce1a97 {
		t.Errorf("lock %#x, %v; the id of a name must never change", id, err)
	}
	for _, own := range []int64{4856221667890123456, -4856221667890123456, math.MinInt64, math.MaxInt64, -1} {
		for _, namespace := range []int{roles.AutoNamespace, 0} {
			if id, err := roles.CustomLockID("billing", own, namespace); err != nil || id != own {
				t.Errorf("lock %d in namespace %d: %d, %v", own, namespace, id, err)
			}
		}
	}
	for _, bad := range [][2]int64{{-1, 1}, {1 << 56, 1}, {math.MaxInt64, 127}, {0, -2}, {0, 128}} {
		if _, err := roles.CustomLockID("billing", bad[0], int(bad[1])); err == nil {
			t.Errorf("lock %d in namespace %d was accepted", bad[0], bad[1])
		}
	}
}

func TestInvalidCustomRolesAreRejected(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Billing", "1st", "a-b", "worker", "scheduler", strings.Repeat("x", 64)} {
		if roles.CheckCustom(name) == nil {
			t.Errorf("role %q was accepted", name)
		}
	}
	a, b := roles.RoleConfig{Role: "a", LockID: 1}, roles.RoleConfig{Role: "b", LockID: 1}
	if err := roles.CheckLocks([]roles.RoleConfig{a, b}); err == nil || !strings.Contains(err.Error(), "a and b") {
		t.Errorf("two roles on one lock: %v", err)
	}
	b.LockID = 2
	if err := roles.CheckLocks([]roles.RoleConfig{a, b}); err != nil {
		t.Error(err)
	}
	if roles.CheckLocks([]roles.RoleConfig{a, b, {Role: "a", LockID: 3}}) == nil {
		t.Error("a duplicate role was accepted")
	}
}

// OnTerm is called for each term, and OnRenewed with the time at which each lease began.
func TestOnTermAndOnRenewedAreCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var events []roles.TermChange
		var trusted []time.Time
		idle := func(ctx context.Context, _ leaderstore.Fence) error {
			watchdog.Sleep(ctx, time.Hour)
			return nil
		}
		opts := s.options("b", roles.RoleConfig{
			Role: "billing", LockID: 1, Lead: roles.Watched(idle),
			OnRenewed: func(sent time.Time) { trusted = append(trusted, sent) },
		})
		opts.OnTerm = func(change roles.TermChange) { events = append(events, change) }
		began := time.Now()
		stop := start(t, opts)
		time.Sleep(refresh + time.Millisecond)
		synctest.Wait()
		if want := []time.Time{began, began.Add(refresh)}; !slices.EqualFunc(trusted, want, time.Time.Equal) {
			t.Errorf("trusted since %v; want %v", trusted, want)
		}
		s.sever("b")
		time.Sleep(check)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		want := []roles.TermChange{
			{Role: "billing", Term: 1, Leads: true},
			{Role: "billing", Term: 1, Reason: roles.Lost},
			{Role: "billing", Term: 2, Leads: true},
			{Role: "billing", Term: 2, Reason: "resigned"},
		}
		if !slices.Equal(events, want) {
			t.Errorf("changes %+v; want %+v", events, want)
		}
	})
}

// Work with a longer stop timeout keeps its lease while it stops.
func TestStopTimeoutOfRoleIsHonored(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		timeout time.Duration
		want    string
	}{
		{0, "billing lease_expired"},
		{4 * lease, "billing resigned"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			slow := func(ctx context.Context, _ leaderstore.Fence) error {
				watchdog.Sleep(ctx, time.Hour)
				time.Sleep(2 * lease)
				return nil
			}
			stop := start(t, s.options("b", roles.RoleConfig{Role: "billing", LockID: 1, Lead: roles.Watched(slow), StopTimeout: test.timeout}))
			synctest.Wait()
			err := stop()
			time.Sleep(2 * lease)
			if !slices.Equal(s.resigned, []string{test.want}) {
				t.Errorf("timeout %v: %v, %v; want %s", test.timeout, s.resigned, err, test.want)
			}
		})
	}
}

func TestWatchdogStartsWithFirstReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		begin := make(chan struct{})
		lead := func(ctx context.Context, _ leaderstore.Fence, watch *watchdog.Watchdog) error {
			select {
			case <-begin:
			case <-ctx.Done():
				return nil
			}
			watch.Context(ctx, "billing")
			<-ctx.Done()
			return nil
		}
		stop := start(t, s.options("b", roles.RoleConfig{Role: "billing", LockID: 1, Lead: lead}))
		time.Sleep(10 * lease)
		synctest.Wait()
		if len(s.resigned) > 0 {
			t.Fatalf("resigned: %v", s.resigned)
		}
		close(begin)
		time.Sleep(lease + time.Millisecond)
		synctest.Wait()
		if !slices.Equal(s.resigned, []string{"billing stepped_down"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// history returns how long a takeover must wait.
type history struct {
	wait time.Duration
	err  error
}

func (h history) takeoverWait(context.Context, leaderstore.Fence, time.Duration) (time.Duration, error) {
	return h.wait, h.err
}

func TestUnfencedWorkWaitsForPredecessor(t *testing.T) {
	t.Parallel()
	const delay = 5 * time.Second
	for _, test := range []struct {
		name  string
		delay time.Duration
		past  history
		want  time.Duration
	}{
		{"in order", delay, history{}, 0},
		{"crashed", delay, history{wait: 4 * time.Second}, 4 * time.Second},
		{"unknown", delay, history{err: errors.New("connection broken")}, delay},
		{"never beyond the delay", delay, history{wait: 4000 * time.Second}, delay},
		{"no delay", 0, history{err: errors.New("not used")}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			won := time.Now()
			began := make(chan time.Duration, 1)
			opts := s.options("b", roles.RoleConfig{
				Role: "billing", LockID: 1, TakeoverDelay: test.delay,
				Lead: roles.Unwatched(func(ctx context.Context, _ leaderstore.Fence) error {
					began <- time.Since(won)
					<-ctx.Done()
					return nil
				}),
			})
			opts.TakeoverWait = test.past.takeoverWait
			stop := start(t, opts)
			if after := <-began; after != test.want {
				t.Errorf("%s: begins after %v; want %v", test.name, after, test.want)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
