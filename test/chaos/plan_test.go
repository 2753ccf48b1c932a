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
	stopAny      kind = "node terminated"
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
	// One that is terminated in the middle is to finish the tick, and to give up the
	// lead.
	endBeforeCommit kind = "leader terminated before the commit"
	// What it has committed it is never told.
	loseCommit kind = "reply to the commit of a tick lost"
	// One that is stopped before the fence wakes when another leads.
	stopBeforeFence kind = "leader stopped before the fence"
	// One that is stopped before the commit holds its transaction open, and goes
	// on with the commit when it wakes.
	stopBeforeCommit kind = "leader stopped before the commit"
	delayAfterRead   kind = "leader delayed after reading"
	// Its session ends while PostgreSQL carries out its commit, which takes its
	// time: the next leader is ready before the commit is done.
	severInCommit kind = "leader severed in the commit"

	// A worker is struck when a job is done and nobody knows. One that is stopped
	// there is given up, and wakes when the job has begun elsewhere.
	killBeforeComplete kind = "worker killed before the completion"
	stopBeforeComplete kind = "worker stopped before the completion"
	endBeforeComplete  kind = "worker terminated before the completion"
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

	// Busy threads take the machine's processors.
	overload kind = "machine overloaded"
	// Another cluster lives in another schema of the same database, with the defaults.
	startStranger kind = "second cluster in the database"
	// Somebody deletes a role's row.
	deleteRow kind = "row of a role deleted"

	// Packets between a node and PostgreSQL, or whatever stands before it, are lost:
	// nothing is closed, and nobody is told.
	losePackets       kind = "packets of a node lost"
	loseLeaderPackets kind = "packets of the leader lost"
	loseRequests      kind = "packets to PostgreSQL lost"
	loseAnswers       kind = "packets from PostgreSQL lost"
)

// commitPause is for whoever is to be between a leader and the reply to its commit.
const commitPause = 500 * time.Millisecond

// strikes are what a node is told to do to itself, at a failpoint.
var strikes = map[kind]string{
	killAfterRead:    "crons/after-read=kill",
	killBeforeCommit: "crons/before-commit=kill",
	killAfterCommit:  "crons/after-commit=kill",
	stopBeforeFence:  "crons/before-fence=stop",
	stopBeforeCommit: "crons/before-commit=stop",
	delayAfterRead:   "crons/after-read=sleep:2s",
	endBeforeCommit:  "crons/before-commit=term",
	loseCommit:       "crons/before-commit=sleep:" + commitPause.String(),

	killBeforeComplete: "jobs/before-complete=kill",
	stopBeforeComplete: "jobs/before-complete=stop",
	endBeforeComplete:  "jobs/before-complete=term",
}

// What scenarios of their own do.
const (
	diskFull    kind = "disk full"
	noLog       kind = "disk full, no room for the log"
	clockLeap   kind = "database's clock leapt"
	promoted    kind = "primary killed, replica promoted"
	packetsLost kind = "packets lost"
	repliesLost kind = "packets of replies lost"
	strangeTerm kind = "second cluster while all is quiet"
	rowMissing  kind = "rows of all roles deleted"
)

// injector is one of several that break the cluster at the same time: no fault waits for
// one of another injector. Its plan is dealt again and again, each time in another order:
// a short run meets each of them, too.
type injector struct {
	name     string // in the drawing
	plan     []kind
	shortest time.Duration // between two faults
	longest  time.Duration
}

// injectors together do a fault each half second. The first has to wait for ticks.
var injectors = []injector{
	{
		name: "struck in a tick or completion", shortest: 100 * time.Millisecond, longest: 900 * time.Millisecond,
		plan: []kind{
			killAfterRead, killBeforeCommit, killAfterCommit, endBeforeCommit, stopBeforeFence, stopBeforeCommit, severInCommit, loseCommit, delayAfterRead,
			killBeforeComplete, stopBeforeComplete, endBeforeComplete,
		},
	},
	{
		name: "process or session ended, frozen", shortest: 500 * time.Millisecond, longest: 3 * time.Second,
		plan: []kind{killLeader, killAny, freezeLeader, stopLeader, stopAny, endSession, endNode, endAll, freezeAny},
	},
	{
		name: "PostgreSQL", shortest: time.Second, longest: 7 * time.Second,
		plan: []kind{restartFast, restartCrash, restartKill, fillSlots},
	},
	{
		name: "way to PostgreSQL", shortest: 500 * time.Millisecond, longest: 5 * time.Second,
		plan: []kind{slowWay, stallWay, loseReplies, resetWay},
	},
	{
		name: "file, jobs, duplicates, second clusters", shortest: 500 * time.Millisecond, longest: 3 * time.Second,
		plan: []kind{editFile, breakFile, startTwin, poison, flood, overload, startStranger, deleteRow},
	},
	{
		name: "network", shortest: 2 * time.Second, longest: 8 * time.Second,
		plan: []kind{losePackets, loseLeaderPackets, loseRequests, loseAnswers},
	},
}

// serverInjector stops PostgreSQL, which only the test's own goroutine may.
const serverInjector = 2

// kinds returns the kinds of faults of all injectors.
func kinds() []kind {
	var all []kind
	for _, h := range injectors {
		all = append(all, h.plan...)
	}
	return all
}

const (
	// lease is forge's default. Who is stopped for longer has lost the lead.
	lease = 3 * time.Second
	// givenUp is after how long the jobs of a node that is stopped run elsewhere.
	givenUp = 8 * time.Second
)

// fault is one thing to do, some time after the one before of the same injector.
type fault struct {
	kind  kind
	after time.Duration
	hold  time.Duration // how long who is stopped stays so
	node  int           // which one, where it is not the leader
}

// plan is all that is random in what one injector does, made from the seed.
type plan struct {
	injector

	rand  *rand.Rand
	dealt []kind
}

func newPlan(seed uint64, number int) *plan {
	return &plan{injector: injectors[number], rand: rand.New(rand.NewPCG(seed, uint64(number)))} //nolint:gosec // few injectors
}

func (p *plan) next() fault {
	if len(p.dealt) == 0 {
		p.dealt = append(p.dealt, p.plan...)
		p.rand.Shuffle(len(p.dealt), func(i, j int) { p.dealt[i], p.dealt[j] = p.dealt[j], p.dealt[i] })
	}
	f := fault{
		kind: p.dealt[0], after: p.between(p.shortest, p.longest),
		hold: p.between(lease/4, lease*3/2), node: p.rand.IntN(nodeCount),
	}
	if f.kind == stopBeforeFence {
		f.hold = max(f.hold, lease+lease/10)
	}
	if f.kind == stopBeforeComplete {
		f.hold = max(f.hold, givenUp)
	}
	if _, ok := partitions[f.kind]; ok {
		f.hold = p.between(lease/2, lease*3) // short of the lease, and longer than a node is given up after
	}
	p.dealt = p.dealt[1:]
	return f
}

func (p *plan) between(least, most time.Duration) time.Duration {
	return least + time.Duration(p.rand.Int64N(int64(most-least)))
}

// draw returns the first faults of an injector.
func draw(seed uint64, number, count int) []fault {
	p, faults := newPlan(seed, number), make([]fault, count)
	for i := range faults {
		faults[i] = p.next()
	}
	return faults
}

func TestSeedReplaysThePlan(t *testing.T) {
	t.Parallel()
	for number, h := range injectors {
		count := 3 * len(h.plan)
		first := draw(7, number, count)
		if !slices.Equal(first, draw(7, number, count)) {
			t.Errorf("%s: one seed gave two plans", h.name)
		}
		if slices.Equal(first, draw(8, number, count)) {
			t.Errorf("%s: two seeds gave one plan", h.name)
		}
		for _, k := range h.plan {
			if !slices.ContainsFunc(first[:len(h.plan)], func(f fault) bool { return f.kind == k }) {
				t.Errorf("%s: the first deal has no %q", h.name, k)
			}
		}
	}
}

// demanded is what has to be among the faults of a run, and beside it.
var demanded = []struct {
	what    string
	drawn   []kind
	besides []kind // in scenarios
}{
	{what: "SIGKILL of leaders and workers, at random and at failpoints", drawn: []kind{
		killLeader, killAny, killAfterRead, killBeforeCommit, killAfterCommit, killBeforeComplete,
	}},
	{what: "SIGTERM of them", drawn: []kind{stopLeader, stopAny, endBeforeCommit, endBeforeComplete}},
	{what: "SIGSTOP and SIGCONT of them", drawn: []kind{freezeLeader, freezeAny, stopBeforeFence, stopBeforeCommit, stopBeforeComplete}},
	{what: "pauses in a tick", drawn: []kind{delayAfterRead}},
	{what: "backends terminated", drawn: []kind{endSession, endNode, endAll, severInCommit}},
	{what: "PostgreSQL stopped in every mode", drawn: []kind{restartFast, restartCrash, restartKill}},
	{what: "PostgreSQL full", drawn: []kind{fillSlots}, besides: []kind{diskFull, noLog}},
	{what: "PostgreSQL slow, or unheard", drawn: []kind{slowWay, stallWay, resetWay, loseReplies, loseCommit}},
	{what: "partitions", drawn: []kind{losePackets, loseLeaderPackets, loseRequests, loseAnswers}, besides: []kind{packetsLost, repliesLost}},
	{what: "promotion of a replica", besides: []kind{promoted}},
	{what: "the database's clock", besides: []kind{clockLeap}},
	{what: "the configuration", drawn: []kind{editFile, breakFile}},
	{what: "two nodes with one id", drawn: []kind{startTwin}},
	{what: "jobs that do harm", drawn: []kind{poison, flood}},
	{what: "overload", drawn: []kind{overload}},
	{what: "another cluster in the database", drawn: []kind{startStranger}, besides: []kind{strangeTerm}},
	{what: "rows deleted by hand", drawn: []kind{deleteRow}, besides: []kind{rowMissing}},
}

// What is demanded is drawn, what is drawn is demanded, and each scenario does its
// own.
func TestEveryRequiredFaultIsPlanned(t *testing.T) {
	t.Parallel()
	inDecks, named := kinds(), []kind{}
	for _, d := range demanded {
		for _, k := range d.drawn {
			if !slices.Contains(inDecks, k) {
				t.Errorf("%s: no injector plans %q", d.what, k)
			}
		}
		for _, k := range d.besides {
			if !slices.ContainsFunc(scenarios, func(s scenario) bool { return slices.Contains(s, k) }) {
				t.Errorf("%s: no scenario does %q", d.what, k)
			}
		}
		named = append(named, d.drawn...)
	}
	for _, k := range inDecks {
		if !slices.Contains(named, k) {
			t.Errorf("%q is drawn and not on the list", k)
		}
	}
	if twice := len(inDecks) - len(slices.Compact(slices.Sorted(slices.Values(inDecks)))); twice != 0 {
		t.Errorf("%d kinds are in two plans", twice)
	}
}
