package chaos

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

// What is done to PostgreSQL under Patroni, in a run of its own (build tag patroni).
const (
	switchover     kind = "switchover"
	killPrimary    kind = "primary killed with its Patroni"
	freezePrimary  kind = "primary frozen"
	cutPrimary     kind = "primary cut off"
	stopEtcd       kind = "etcd gone"
	restartHAProxy kind = "HAProxy restarted"
)

var failoverFaults = scenario{switchover, killPrimary, freezePrimary, cutPrimary, stopEtcd, restartHAProxy}

// dealFailovers returns all faults in the order that the seed and the round determine.
func dealFailovers(seed, round uint64) scenario {
	dealt := slices.Clone(failoverFaults)
	rand.New(rand.NewPCG(seed, round)).Shuffle(len(dealt), func(i, j int) { //nolint:gosec // replayed
		dealt[i], dealt[j] = dealt[j], dealt[i]
	})
	return dealt
}

// outage is a time in which no server took writes, as seen by a prober.
type primaryOutage struct {
	member   string // that took writes again
	from, to time.Time
}

// recovery is what followed an outage.
type recovery struct {
	primaryOutage

	cause kind
	// term is the time from the end of the outage to the next term of the scheduler; negative:
	// the leader kept its term.
	term time.Duration
}

// recoveries returns what followed each outage: its last fault, and the first term that began
// after the outage did, unless another outage or fault came before.
func recoveries(outages []primaryOutage, events []event, leads []checker.Lead) []recovery {
	var all []recovery
	for i, o := range outages {
		found := recovery{primaryOutage: o, term: -1}
		for _, e := range events {
			if e.at.Before(o.to) {
				found.cause = e.kind
			}
		}
		next := slices.IndexFunc(leads, func(l checker.Lead) bool { return l.At.After(o.from) })
		another := func(e event) bool { return e.at.After(o.to) && e.at.Before(leads[next].At) }
		if next >= 0 && (i+1 == len(outages) || leads[next].At.Before(outages[i+1].from)) && !slices.ContainsFunc(events, another) {
			found.term = max(0, leads[next].At.Sub(o.to))
		}
		all = append(all, found)
	}
	return all
}

// ticksRunAgain counts the ticks that began more than once, each in another job or attempt.
func ticksRunAgain(lines []checker.Line) int {
	type tick struct {
		cron string
		at   int64
	}
	began := map[tick]int{}
	for _, line := range lines {
		if line.Cron != "" && line.What == checker.Began {
			began[tick{line.Cron, line.Tick.UnixNano()}]++
		}
	}
	again := 0
	for _, times := range began {
		if times > 1 {
			again++
		}
	}
	return again
}

func TestTicksThatRanAgainAreCountedOnce(t *testing.T) {
	t.Parallel()
	at := time.Unix(7, 0)
	lines := []checker.Line{
		{What: checker.Began, Cron: "a", Tick: at, Job: 1},
		{What: checker.Ended, Cron: "a", Tick: at, Job: 1},
		{What: checker.Began, Cron: "a", Tick: at, Job: 2},
		{What: checker.Began, Cron: "a", Tick: at, Job: 3},
		{What: checker.Began, Cron: "b", Tick: at, Job: 4},
		{What: checker.Began, Job: 5},
		{What: checker.Began, Job: 6},
	}
	if got := ticksRunAgain(lines); got != 1 {
		t.Errorf("%d ticks ran again, want 1", got)
	}
}

func TestFailoversAreDealtFromTheSeed(t *testing.T) {
	t.Parallel()
	first := dealFailovers(7, 0)
	if !slices.Equal(first, dealFailovers(7, 0)) || slices.Equal(first, dealFailovers(7, 1)) || slices.Equal(first, dealFailovers(8, 0)) {
		t.Error("the order does not follow from seed and round")
	}
	if slices.Sort(first); len(slices.Compact(first)) != len(failoverFaults) {
		t.Errorf("a round has not every fault once: %v", first)
	}
}

func TestRecoveryIsTheNextTermAfterAnOutage(t *testing.T) {
	t.Parallel()
	at := func(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }
	outages := []primaryOutage{
		{"pg-2", at(10), at(12)}, {"pg-3", at(20), at(21)}, {"pg-1", at(30), at(31)}, {"pg-2", at(40), at(41)}, {"pg-2", at(50), at(51)},
	}
	events := []event{
		{at(9), killPrimary, ""},
		{at(19), switchover, ""},
		{at(29), restartHAProxy, ""},
		{at(39), cutPrimary, ""},
		{at(49), freezePrimary, ""},
		{at(60), restartHAProxy, ""},
	}
	leads := []checker.Lead{{At: at(1)}, {At: at(12.5)}, {At: at(20.9)}, {At: at(44)}, {At: at(61)}}
	want := []recovery{
		{outages[0], killPrimary, 500 * time.Millisecond},
		{outages[1], switchover, 0}, // the prober saw the end late
		{outages[2], restartHAProxy, -1},
		{outages[3], cutPrimary, 3 * time.Second},
		{outages[4], freezePrimary, -1}, // the term at 61 s followed another fault
	}
	if got := recoveries(outages, events, leads); !slices.Equal(got, want) {
		t.Errorf("recoveries:\n%+v\nwant:\n%+v", got, want)
	}
}
