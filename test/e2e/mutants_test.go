package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/chaos/journal"
	"github.com/forge-scheduler/forge/test/nodes"
)

// A mutant is forge without one of its protections, struck where that counts. What
// it does then must not escape the checker; forge as it is has to bear the same.
type mutant struct {
	name string
	// without is what the mutant lacks; bears is what forge lacks too, as it would
	// keep the strike from the place.
	without, bears string
	// want is what the checker calls it.
	want   checker.Kind
	config string
	takes  time.Duration // how long a job runs
	// keyLimit is how many jobs of a tenant may run at once, and rate how many may start; zero: any.
	keyLimit int
	rate     checker.Rate
	// strike says whether the mutant has done wrong; of forge itself nothing is asked.
	strike func(s *scene) bool
}

// Each second a tick; its runs may overlap.
const pulse = `
[[crons]]
name = "pulse"
job = "pulse"
schedule = "@every 1s"
overlap = "allow"
catch_up = "all"
`

var mutants = []mutant{
	{
		name: "fence", without: "leaderstore/fence", bears: "crons/cancel", want: checker.StaleTerm,
		config: unheard + pulse + steady, strike: (*scene).wakeDeposed,
	},
	{
		name: "unique key", without: "cronstore/unique-key", want: checker.Double,
		config: unheard + pulse + unhurried, strike: (*scene).triggerBeforeTheLeader,
	},
	{
		name: "catch-up", without: "crons/catch-up", want: checker.Lost,
		config: pulse + unhurried, strike: (*scene).killAfterReading,
	},
	{
		name: "database's clock", without: "crons/database-clock", want: checker.Early,
		config: pulse + unhurried, strike: (*scene).clockAhead,
	},
	{
		name: "attempt fence", without: "jobs/attempt-fence", want: checker.StaleAttempt, takes: 3 * time.Second,
		config: unhurried, strike: (*scene).wakeWorker,
	},
	{
		name: "count of a limit", without: "limits/recount", want: checker.OverLimit, takes: 8 * time.Second, keyLimit: 1,
		config: oneOfATenant + unhurried, strike: (*scene).killWhileAtLimit,
	},
	{
		name: "attempts of a hung node", without: "limits/hung-attempts", want: checker.OverLimit, takes: time.Second, keyLimit: 1,
		config: oneOfATenant + slowlyDead + unhurried, strike: (*scene).hangAtLimit,
	},
	{
		name: "window of a rate", without: "limits/rate-window", want: checker.OverRate, rate: checker.Rate{Limit: 1, Per: 15 * time.Second},
		config: oneInAWhile + unhurried, strike: (*scene).killAfterRate,
	},
	{
		name: "turns of a fair queue", without: "assign/turns", want: checker.Unfair, takes: 200 * time.Millisecond,
		config: inTurns + unhurried, strike: (*scene).killDuringBacklog,
	},
}

// mutantStrikes is how often a mutant may come off well: the one round that it still has
// may fail for other reasons, a connection or a lock.
const mutantStrikes = 5

func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for range mutantStrikes {
				s := newScene(t, m, true)
				began := time.Now()
				if wrong := m.strike(s); !wrong {
					s.abandon()
					continue
				}
				findings := s.judge()
				if !slices.ContainsFunc(findings, func(f checker.Finding) bool { return f.Kind == m.want }) {
					t.Errorf("the checker has found %v; want %s", findings, m.want)
				}
				t.Logf("without its %s: %s after %s", m.name, m.want, time.Since(began).Round(time.Millisecond))
				return
			}
			t.Errorf("none of %d strikes has led it astray", mutantStrikes)
		})
	}
}

// What the mutant without a fence does TestWokenLeaderWritesNothing asks of forge.
func TestForgePassesWhereMutantsFail(t *testing.T) {
	t.Parallel()
	for _, m := range mutants[1:] {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, m, false)
			m.strike(s)
			for _, finding := range s.judge() {
				t.Error(finding)
			}
		})
	}
}

// scene is a cluster that keeps a journal and hands out orders.
type scene struct {
	*cluster

	mutated           bool
	without           string
	orders, testimony string
	since             time.Time
	mutant            mutant
	turns             []checker.Turn
}

const witnessed = `
[jobs.pulse]
kind = "shell"
command = [%q, %q, %q]
`

var buildWitness = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(builds, "")
	if err != nil {
		return "", err
	}
	return nodes.Build(dir, "test/chaos/witness")
})

func newScene(t *testing.T, m mutant, mutated bool) *scene {
	t.Helper()
	failpointBinary(t) // it takes a while, and ticks fall due
	witness, err := buildWitness()
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{orders: nodes.OpenDir(t), without: m.bears, mutated: mutated, mutant: m}
	if mutated {
		s.without += "," + m.without
	}
	s.testimony = filepath.Join(s.orders, "testimony.jsonl")
	s.cluster = newCluster(t, fmt.Sprintf(witnessed, witness, s.testimony, m.takes)+m.config)
	if _, errs, code := s.forge("apply", "--config", s.config); code != 0 {
		t.Fatalf("forge apply: %s", errs)
	}
	if err := journal.Install(t.Context(), s.pool); err != nil {
		t.Fatal(err)
	}
	s.since = s.instant(`SELECT coalesce(min(watermark), clock_timestamp()) FROM forge_crons`)
	return s
}

// enter starts a node that obeys orders.
func (s *scene) enter(id string, env ...string) {
	s.t.Helper()
	s.startProgram(failpointBinary(s.t), id, append(env, "FORGE_FAILPOINTS=@"+s.order(id), "FORGE_FAILPOINTS_OFF="+s.without)...)
}

func (s *scene) order(id string) string { return filepath.Join(s.orders, id) }

// strikes has a node strike itself, and waits until it has.
func (s *scene) strikes(id, place string) {
	s.t.Helper()
	rewrite(s.t, s.order(id), place)
	s.isStruck(id, place)
}

// isStruck waits until the order was carried out, which takes it away.
func (s *scene) isStruck(id, place string) {
	s.t.Helper()
	eventually(s.t, id+" is struck by "+place, func() bool {
		_, err := os.Stat(s.order(id))
		return errors.Is(err, os.ErrNotExist)
	})
}

// wakeDeposed stops a leader before its fence and wakes it when another one leads,
// which is stopped in turn so that every tick is left to it.
func (s *scene) wakeDeposed() bool {
	s.enter("a")
	_, term := s.leader(0)
	s.enter("b")
	s.awaitTicks(term)
	rewrite(s.t, s.order("b"), "crons/before-fence=stop")
	s.strikes("a", "crons/before-fence=stop")
	s.leader(term)
	written := s.writtenBy(term)
	s.signal("a", syscall.SIGCONT)
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if s.writtenBy(term) > written {
			return true
		}
	}
	return false
}

// triggerBeforeTheLeader runs a tick by hand that is due, while the leader is
// stopped on its way to it.
func (s *scene) triggerBeforeTheLeader() bool {
	if s.mutated {
		s.exec(`ALTER TABLE forge_cron_ticks DROP CONSTRAINT forge_cron_ticks_pkey`)
	}
	s.enter("a")
	_, term := s.leader(0)
	s.awaitTicks(term)
	s.strikes("a", "crons/before-fence=stop")
	var tick time.Time
	eventually(s.t, "a tick is due that nobody has recorded", func() bool {
		tick = s.instant(`SELECT clock_timestamp()`).Truncate(time.Second)
		return s.number(`SELECT count(*) FROM forge_cron_ticks WHERE tick >= $1`, tick) == 0
	})
	env := []string{"FORGE_DATABASE_URL=" + s.url, "FORGE_FAILPOINTS_OFF=" + s.without}
	if _, errs, code := runToEnd(s.t, failpointBinary(s.t), env, "cron", "trigger", "pulse", "--at", tick.Format(time.RFC3339)); code != 0 {
		s.t.Fatalf("forge cron trigger: %s", errs)
	}
	s.signal("a", syscall.SIGCONT)
	eventually(s.t, "the leader has gone past the tick", func() bool {
		return s.number(`SELECT count(*) FROM forge_crons WHERE watermark > $1`, tick.Add(time.Second)) == 1
	})
	// A leader that woke late has a long run of ticks due, and leaves out what is recorded.
	return s.number(`SELECT count(*) FROM forge_cron_ticks WHERE tick = $1`, tick) > 1
}

// killAfterReading kills a leader in the transaction of a tick.
func (s *scene) killAfterReading() bool {
	s.enter("a")
	_, term := s.leader(0)
	s.enter("b")
	s.awaitTicks(term)
	s.strikes("a", "crons/after-read=kill")
	<-s.nodes["a"].done
	delete(s.nodes, "a")
	_, next := s.leader(term)
	s.awaitTicks(next)
	return true
}

// clockAhead has the leader on a machine whose clock is ahead.
func (s *scene) clockAhead() bool {
	s.enter("a", "FORGE_FAILPOINTS_AHEAD=2s")
	_, term := s.leader(0)
	// What fell due before it led is no sign of its haste.
	led := s.instant(`SELECT clock_timestamp()`)
	eventually(s.t, "ticks are over that were recorded", func() bool {
		return s.number(`SELECT count(*) FROM forge_cron_ticks WHERE term = $1 AND tick > $2 AND tick < clock_timestamp()`, term, led) > 2
	})
	return s.number(`SELECT count(*) FROM forge_cron_ticks WHERE recorded_at < tick AND tick < clock_timestamp()`) > 0
}

// wakeWorker stops a worker that is about to say that a job is done, and wakes it
// when the job runs again elsewhere.
func (s *scene) wakeWorker() bool {
	s.enter("a", "FORGE_NODE_ROLES=worker")
	s.enter("s", "FORGE_NODE_ROLES=scheduler")
	s.leader(0)
	rewrite(s.t, s.order("a"), "jobs/before-complete=stop")
	if _, errs, code := s.forge("job", "enqueue", "pulse", "--config", s.config); code != 0 {
		s.t.Fatalf("forge job enqueue: %s", errs)
	}
	s.isStruck("a", "jobs/before-complete=stop")
	s.enter("b", "FORGE_NODE_ROLES=worker")
	eventually(s.t, "the job runs again", func() bool {
		return s.number(`SELECT count(*) FROM river_job WHERE attempt > 1`) == 1
	})
	s.signal("a", syscall.SIGCONT)
	eventually(s.t, "the job is done", func() bool {
		return s.number(`SELECT count(*) FROM river_job WHERE state = 'completed'`) == 1
	})
	return s.number(`SELECT count(*) FROM river_job WHERE finalized_at < attempted_at`) == 1
}

// judge ends the nodes and has the checker look at all that came before.
func (s *scene) judge() []checker.Finding {
	s.t.Helper()
	until := s.instant(`SELECT clock_timestamp()`)
	if s.mutated {
		s.abandon()
	} else {
		s.settle()
	}
	h, err := journal.Read(s.t.Context(), s.pool, s.testimony)
	if err != nil {
		s.t.Fatal(err)
	}
	// Of what was due last a leader that was killed may not know yet.
	if settled := s.instant(`SELECT coalesce(min(watermark), $1) FROM forge_crons`, until); settled.Before(until) {
		until = settled
	}
	if s.number(`SELECT count(*) FROM forge_crons`) > 0 {
		h.Crons = []checker.Cron{{
			Name: "pulse", Rule: checker.Rule{Every: time.Second}, Overlap: checker.OverlapAllow, CatchUp: checker.CatchUpAll,
			Window: time.Hour, Limit: 10, Since: s.since, Until: until,
		}}
	}
	h.KeyLimits, h.Rates = s.mutant.limits()
	h.Turns = s.turns
	return slices.DeleteFunc(checker.Check(h), func(f checker.Finding) bool { return !f.Tick.Before(until) })
}

// abandon kills the nodes, those that are stopped too.
func (s *scene) abandon() {
	for id := range s.nodes {
		s.kill(id)
	}
}

func (s *scene) kill(id string) {
	s.nodes[id].Kill()
	delete(s.nodes, id)
}
