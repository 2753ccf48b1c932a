package assign

import (
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// member is a node that may be given jobs, as the leader accounts for it: what
// it reported, less what it was offered since.
type member struct {
	nodeID, incarnation string
	// clientID is how it signs what it claims.
	clientID     string
	capabilities []string
	tags         map[string]string
	// kinds are those that it has a worker for, defined as in force.
	kinds  map[string]bool
	queues map[string]int
	slots  int

	// heard is when the newest report came; zero: none in this session.
	heard  time.Time
	report wire.Credit
	// left and slotsLeft are the report less the offers under way.
	left      map[string]int
	slotsLeft int
	// offers are under way: not yet accounted for by a report, oldest first.
	offers []sent
	// seq numbers the offers of the term.
	seq   int64
	asked time.Time
	// turn is when it was last picked, on the board's count.
	turn uint64
	// crowd are its running jobs by kind; nil where the strategy does not ask.
	crowd map[string]int
}

// sent is an offer under way.
type sent struct {
	seq     int64
	at      time.Time
	byQueue map[string]int
}

// used is how many slots are in use or spoken for.
func (m *member) used() int { return m.slots - m.slotsLeft }

// room is how many more jobs of the queue the member could be offered.
func (m *member) room(queue string) int { return min(m.left[queue], m.slotsLeft) }

// account computes what is left from the report and the offers under way.
func (m *member) account() {
	m.left, m.slotsLeft = maps.Clone(m.report.Free), m.report.Slots
	if m.left == nil {
		m.left = map[string]int{}
	}
	for _, offer := range m.offers {
		for queue, n := range offer.byQueue {
			m.left[queue] -= n
			m.slotsLeft -= n
		}
	}
}

// board is the leader's memory of the nodes in one term.
type board struct {
	term     int64
	strategy string
	members  []*member // seated, by node id
	// known are all members of the term by incarnation: one that drains and
	// comes back keeps its sequence.
	known   map[string]*member
	turns   uint64
	inForce definitions
	// told are the kinds that nobody works, as was said.
	told map[string]bool
	// timeout is how long the next statement may take.
	timeout time.Duration
}

func newBoard(term int64, strategy string) *board {
	return &board{term: term, strategy: strategy, known: map[string]*member{}, told: map[string]bool{}, timeout: statementTimeout}
}

// seat takes over the roster, and keeps what it knows of members that stay.
func (b *board) seat(nodes []nodestore.Node) {
	before := b.members
	b.members = nil
	for _, n := range nodes {
		if absence(n) != "" || len(n.Kinds) == 0 || len(n.Queues) == 0 {
			continue
		}
		m := b.known[n.Incarnation]
		if m == nil {
			m = &member{}
			b.known[n.Incarnation] = m
		}
		m.become(n, b.inForce)
		b.members = append(b.members, m)
	}
	for _, m := range before {
		if !slices.Contains(b.members, m) {
			m.forget()
		}
	}
}

// absence is the state for which a node is given nothing; empty for one that is
// there to work.
func absence(n nodestore.Node) string {
	switch {
	case !n.FencedAt.IsZero():
		return nodestore.Dead
	case n.State != nodestore.Active:
		return n.State
	default:
		return ""
	}
}

// become takes over what the node's row says.
func (m *member) become(n nodestore.Node, inForce definitions) {
	m.nodeID, m.incarnation, m.clientID, m.slots = n.NodeID, n.Incarnation, n.ClientID(), n.Slots
	m.capabilities, m.tags, m.queues = n.Capabilities, n.Tags, n.Queues
	m.kinds = inForce.heldBy(n)
}

// credit takes a report in. It returns false for one that is of no use: of an
// unknown member, or older than what is known. A report of another term makes
// the member be asked at once: it has not heard of this term.
func (b *board) credit(report wire.Credit, now time.Time) bool {
	i := slices.IndexFunc(b.members, func(m *member) bool { return m.incarnation == report.Incarnation })
	if i < 0 {
		return false
	}
	m := b.members[i]
	if report.Term != b.term {
		m.asked = time.Time{}
		return true
	}
	if !m.heard.IsZero() && report.Seen < m.report.Seen {
		return false
	}
	m.report, m.heard = report, now
	m.offers = slices.DeleteFunc(m.offers, func(o sent) bool { return o.seq <= report.Seen })
	m.account()
	return true
}

// assign books a job to a member.
func (b *board) assign(m *member, j job) {
	b.turns++
	m.turn = b.turns
	m.left[j.queue]--
	m.slotsLeft--
	if m.crowd != nil {
		m.crowd[j.kind]++
	}
}

// room is how many more jobs of the queue could be offered in all.
func (b *board) room(queue string) int {
	total := 0
	for _, m := range b.members {
		total += max(0, m.room(queue))
	}
	return total
}

// queues are those that some member works, sorted.
func (b *board) queues() []string {
	names := map[string]bool{}
	for _, m := range b.members {
		for queue := range m.queues {
			names[queue] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// expire writes off offers that no report has accounted for within timeout:
// they were lost, or their member is in trouble and must be asked.
func (b *board) expire(now time.Time, timeout time.Duration) {
	for _, m := range b.members {
		before := len(m.offers)
		m.offers = slices.DeleteFunc(m.offers, func(o sent) bool { return now.Sub(o.at) >= timeout })
		if len(m.offers) < before {
			m.account()
			m.asked = time.Time{}
		}
	}
}

// nextExpiry is when expire has something to do; zero: never.
func (b *board) nextExpiry(timeout time.Duration) time.Time {
	var next time.Time
	for _, m := range b.members {
		if len(m.offers) > 0 {
			next = soonest(next, m.offers[0].at.Add(timeout))
		}
	}
	return next
}

// silent are the members to ask for their credit: those that have not reported
// and, if full is set, those whose last word was that they are full.
func (b *board) silent(now time.Time, full bool) []*member {
	var ask []*member
	for _, m := range b.members {
		waiting := m.heard.IsZero() || m.asked.IsZero() || full && m.isFull() && now.Sub(m.heard) >= safetyInterval
		if waiting && now.Sub(m.asked) >= askInterval {
			ask = append(ask, m)
		}
	}
	return ask
}

func (m *member) isFull() bool {
	if m.slotsLeft <= 0 {
		return true
	}
	for queue := range m.queues {
		if m.left[queue] <= 0 {
			return true
		}
	}
	return false
}

// forget drops what may have been missed while the connection was down.
func (b *board) forget() {
	for _, m := range b.members {
		m.forget()
	}
}

// forget drops the member's credit until it reports again. Its sequence goes
// on: that is the term's.
func (m *member) forget() {
	m.heard, m.asked, m.offers, m.report = time.Time{}, time.Time{}, nil, wire.Credit{}
	m.account()
}

// soonest returns the earlier of two times, where zero means never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
