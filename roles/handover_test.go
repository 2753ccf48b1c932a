package roles_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// request requests a hand-over; target may be empty.
func (s *server) request(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	term := leaderstore.Held{Role: string(roles.Scheduler), Term: s.terms[string(roles.Scheduler)]}
	s.requests = map[leaderstore.Held]string{term: target}
	for _, one := range s.sessions {
		one.changed <- struct{}{}
	}
}

func TestLeaderHandsOverOnRequest(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{"": "scheduler stepped_down", "b": "scheduler transferred"} {
		synctest.Test(t, func(t *testing.T) {
			s, a, b := startPair(t)
			time.Sleep(refresh / 2)
			synctest.Wait()
			s.request(target)
			synctest.Wait() // no time passes: first the leader is notified, then the standby
			if a.works() || !b.works() || !slices.Equal(s.resigned, []string{want}) {
				t.Fatalf("a works %v, b works %v, resigned %v", a.works(), b.works(), s.resigned)
			}
		})
	}
}

// A node that has just stepped down leaves the role to others, but takes it on request.
func TestBackedOffNodeLeadsOnRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		time.Sleep(refresh / 2)
		synctest.Wait()
		s.request("")
		synctest.Wait()
		s.request("a")
		synctest.Wait() // no time passes
		want := []string{"scheduler stepped_down", "scheduler transferred"}
		if !a.works() || b.works() || !slices.Equal(s.resigned, want) {
			t.Fatalf("a works %v, b works %v, resigned %v", a.works(), b.works(), s.resigned)
		}
	})
}

// It also takes the role when a later leader gives it up, because there may be no other
// candidate.
func TestBackedOffNodeLeadsWhenLaterLeaderResigns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		time.Sleep(refresh / 2)
		synctest.Wait()
		for range 2 {
			s.request("")
			synctest.Wait() // no time passes
		}
		if !a.works() || b.works() || len(s.endings()) != 2 {
			t.Fatalf("a works %v, b works %v, resigned %v", a.works(), b.works(), s.endings())
		}
	})
}

func TestDrainingNodeLeadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		synctest.Wait()
		a.SetDraining(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.works() || !slices.Equal(s.resigned, []string{"scheduler stepped_down"}) {
			t.Fatalf("works %v, resigned %v", a.works(), s.resigned)
		}
		a.SetDraining(false)
		time.Sleep(2 * check)
		synctest.Wait()
		if !a.works() {
			t.Fatal("does not lead again after the drain")
		}
	})
}

// A shutdown during a statement hands over as soon as the statement returns.
func TestShutdownDuringRenewalHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		var ended time.Time
		s.mu.Lock()
		s.onRenew = func() {
			ended = time.Now()
			a.stop()
		}
		s.mu.Unlock()
		time.Sleep(refresh)
		synctest.Wait()
		if ended.IsZero() || a.works() || !b.works() || !time.Now().Equal(ended) {
			t.Fatalf("a works %v, b works %v, %v after the end", a.works(), b.works(), time.Since(ended))
		}
	})
}

// A role whose work has returned is not resigned while the server may still commit the
// work's last transaction, for at most one refresh interval.
func TestRoleIsNotResignedDuringServerCommit(t *testing.T) {
	t.Parallel()
	for _, ends := range []time.Duration{0, refresh / 2, time.Hour} {
		for name, end := range map[string]func(a *node){"shutdown": func(a *node) { a.stop() }, "failed": func(a *node) { a.fail <- errBroken }} {
			synctest.Test(t, func(t *testing.T) {
				s, a, b := startPair(t)
				s.committing.Store(true)
				end(a)
				time.Sleep(min(ends, refresh) - time.Millisecond)
				synctest.Wait()
				if ends > 0 && (b.works() || len(s.endings()) > 0) {
					t.Errorf("%s: b works %v, resigned %v during a commit", name, b.works(), s.endings())
				}
				s.committing.Store(ends > refresh)
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				if a.works() || !b.works() || len(s.endings()) != 1 {
					t.Errorf("%s: a works %v, b works %v, resigned %v %v after the commit", name, a.works(), b.works(), s.endings(), ends)
				}
			})
		}
	}
}
