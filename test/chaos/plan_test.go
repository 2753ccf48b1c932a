package chaos

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// kind is what is done to the cluster.
type kind string

const (
	killLeader   kind = "leader killed"
	killAny      kind = "node killed"
	freezeLeader kind = "leader frozen"
	stopLeader   kind = "leader terminated"
	endSession   kind = "election session ended"
	endNode      kind = "sessions of the leader ended"
	endAll       kind = "all sessions ended"
	restartFast  kind = "PostgreSQL restarted fast"
	restartCrash kind = "PostgreSQL restarted immediate"
	restartKill  kind = "PostgreSQL killed"

	endedByItself kind = "node ended by itself" // this came of it

	// A leader is struck inside a tick: before it has written, when all is
	// written, and when all is committed and nobody knows yet.
	killAfterRead    kind = "leader killed after reading"
	killBeforeCommit kind = "leader killed before the commit"
	killAfterCommit  kind = "leader killed after the commit"
	// One that is stopped before the fence wakes when another leads.
	stopBeforeFence kind = "leader stopped before the fence"
	// One that is stopped before the commit holds its transaction open, and goes
	// on with the commit when it wakes.
	stopBeforeCommit kind = "leader stopped before the commit"
	delayAfterRead   kind = "leader delayed after reading"
	// Its session ends while PostgreSQL carries out its commit, which takes its
	// time: the next leader is ready before the commit is done.
	severInCommit kind = "leader severed in the commit"
)

// What lasts for a while, beside the faults that follow.
const (
	freezeAny   kind = "node frozen"
	slowWay     kind = "way to PostgreSQL slow"
	stallWay    kind = "way to PostgreSQL stalled"
	loseReplies kind = "replies of PostgreSQL lost"
	resetWay    kind = "connections reset"
	fillSlots   kind = "connection slots exhausted"
	editFile    kind = "configuration edited"
	breakFile   kind = "configuration broken"
	startTwin   kind = "second process of a node"
	poison      kind = "poison job"
	flood       kind = "flood of output"
)

// strikes are what a leader is told to do to itself, at a failpoint.
var strikes = map[kind]string{
	killAfterRead:    "crons/after-read=kill",
	killBeforeCommit: "crons/before-commit=kill",
	killAfterCommit:  "crons/after-commit=kill",
	stopBeforeFence:  "crons/before-fence=stop",
	stopBeforeCommit: "crons/before-commit=stop",
	delayAfterRead:   "crons/after-read=sleep:2s",
}

// deck is dealt again and again, each time in another order: a short run meets
// each of them too.
var deck = []kind{
	killAfterRead, killBeforeCommit, killAfterCommit, stopBeforeFence, stopBeforeCommit, severInCommit, delayAfterRead,
	killLeader, killAny, freezeLeader, stopLeader, endSession, endNode, endAll, restartFast, restartCrash, restartKill,
	freezeAny, slowWay, stallWay, loseReplies, resetWay, fillSlots, editFile, breakFile, startTwin, poison, flood,
}

const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 900 * time.Millisecond
	// lease is forge's default. Who is stopped for longer has lost the lead.
	lease = 3 * time.Second
)

// fault is one thing to do, some time after the one before.
type fault struct {
	kind  kind
	after time.Duration
	hold  time.Duration // how long who is stopped stays so
	node  int           // which one, where it is not the leader
}

// plan is all that is random in a run, made from the seed.
type plan struct {
	seed  uint64
	rand  *rand.Rand
	dealt []kind
}

func newPlan(seed uint64) *plan { return &plan{seed: seed, rand: rand.New(rand.NewPCG(seed, 0))} }

func (p *plan) next() fault {
	if len(p.dealt) == 0 {
		p.dealt = append(p.dealt, deck...)
		p.rand.Shuffle(len(p.dealt), func(i, j int) { p.dealt[i], p.dealt[j] = p.dealt[j], p.dealt[i] })
	}
	f := fault{
		kind: p.dealt[0], after: p.between(shortestPause, longestPause),
		hold: p.between(lease/4, lease*3/2), node: p.rand.IntN(nodeCount),
	}
	if f.kind == stopBeforeFence {
		f.hold = max(f.hold, lease+lease/10)
	}
	p.dealt = p.dealt[1:]
	return f
}

func (p *plan) between(least, most time.Duration) time.Duration {
	return least + time.Duration(p.rand.Int64N(int64(most-least)))
}

func TestSeedReplaysThePlan(t *testing.T) {
	t.Parallel()
	draw := func(seed uint64) []fault {
		p := newPlan(seed)
		faults := make([]fault, 3*len(deck))
		for i := range faults {
			faults[i] = p.next()
		}
		return faults
	}
	first := draw(7)
	if !slices.Equal(first, draw(7)) {
		t.Error("one seed gave two plans")
	}
	if slices.Equal(first, draw(8)) {
		t.Error("two seeds gave one plan")
	}
	for _, k := range deck {
		if !slices.ContainsFunc(first[:len(deck)], func(f fault) bool { return f.kind == k }) {
			t.Errorf("the first deal has no %q", k)
		}
	}
}
