package roles_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// wish asks the leader to hand over; target may be empty.
func (s *server) wish(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	term := leaderstore.Held{Role: string(roles.Scheduler), Term: s.terms[string(roles.Scheduler)]}
	s.wishes = map[leaderstore.Held]string{term: target}
	for _, one := range s.sessions {
		one.told <- struct{}{}
	}
}

func TestAskedLeaderHandsOver(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{"": "scheduler stepped_down", "b": "scheduler transferred"} {
		synctest.Test(t, func(t *testing.T) {
			s, a, b := startPair(t)
			time.Sleep(refresh / 2)
			synctest.Wait()
			s.wish(target)
			synctest.Wait() // no time passes: the leader was told, and then the standby
			if a.works() || !b.works() || !slices.Equal(s.resigned, []string{want}) {
				t.Fatalf("a works %v, b works %v, resigned %v", a.works(), b.works(), s.resigned)
			}
		})
	}
}

// A node that has just stepped down leaves the role to others, but takes it when it is
// asked to.
func TestNodeThatSteppedDownTakesARoleBackWhenAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		time.Sleep(refresh / 2)
		synctest.Wait()
		s.wish("")
		synctest.Wait()
		s.wish("a")
		synctest.Wait() // no time passes
		want := []string{"scheduler stepped_down", "scheduler transferred"}
		if !a.works() || b.works() || !slices.Equal(s.resigned, want) {
			t.Fatalf("a works %v, b works %v, resigned %v", a.works(), b.works(), s.resigned)
		}
	})
}

// It also takes it when the node that led since gives it up: nobody else may be there.
func TestNodeThatSteppedDownTakesARoleBackWhenItIsFreeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		time.Sleep(refresh / 2)
		synctest.Wait()
		for range 2 {
			s.wish("")
			synctest.Wait() // no time passes
		}
		if !a.works() || b.works() || len(s.endings()) != 2 {
			t.Fatalf("a works %v, b works %v, resigned %v", a.works(), b.works(), s.endings())
		}
	})
}

func TestAbstainingNodeLeadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		synctest.Wait()
		a.Abstain(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.works() || !slices.Equal(s.resigned, []string{"scheduler stepped_down"}) {
			t.Fatalf("works %v, resigned %v", a.works(), s.resigned)
		}
		a.Abstain(false)
		time.Sleep(2 * check)
		synctest.Wait()
		if !a.works() {
			t.Fatal("does not stand again")
		}
	})
}

// A shutdown that comes while a statement is under way waits for nothing else.
func TestShutdownDuringARenewalHandsOverAtOnce(t *testing.T) {
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

// Work that has ended here is not over while the server may commit what it sent: the
// role is kept until then, and for no longer than a refresh.
func TestRoleIsNotResignedUnderACommit(t *testing.T) {
	t.Parallel()
	for _, ends := range []time.Duration{0, refresh / 2, time.Hour} {
		for name, end := range map[string]func(a *node){"asked to": func(a *node) { a.stop() }, "failed": func(a *node) { a.fail <- errBroken }} {
			synctest.Test(t, func(t *testing.T) {
				s, a, b := startPair(t)
				s.commits.Store(true)
				end(a)
				time.Sleep(min(ends, refresh) - time.Millisecond)
				synctest.Wait()
				if ends > 0 && (b.works() || len(s.endings()) > 0) {
					t.Errorf("%s: b works %v, resigned %v in the midst of a commit", name, b.works(), s.endings())
				}
				s.commits.Store(ends > refresh)
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				if a.works() || !b.works() || len(s.endings()) != 1 {
					t.Errorf("%s: a works %v, b works %v, resigned %v %v after the commit", name, a.works(), b.works(), s.endings(), ends)
				}
			})
		}
	}
}
