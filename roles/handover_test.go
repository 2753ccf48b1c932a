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
