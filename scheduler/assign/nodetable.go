package assign

import (
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// member is a node that can be given jobs. The leader tracks its reported credit and
// subtracts the offers since.
type member struct {
	nodeID, incarnation string
	// clientID is the name under which the node claims jobs.
	clientID     string
	capabilities []string
	tags         map[string]string
	// kinds are the kinds that the node has a worker for, with the definition in force.
	kinds  map[string]bool
	queues map[string]int
	slots  int

	// reportedAt is when the newest report arrived; zero means none in this session.
	reportedAt time.Time
	report     wire.Credit
	// free, freeSlots and reserved are the reported credit minus the pending offers. Only jobs
	// of a queue may use its reserved slots.
	free      map[string]int
	freeSlots int
	reserved  map[string]int
	// offers are the offers that no report accounts for yet, oldest first.
	offers []sentOffer
	// seq is the number of the last offer of the term.
	seq               int64
	creditRequestedAt time.Time
	// lastPick is the value of nodeTable.picks when the member was last picked.
	lastPick uint64
	// runningByKind counts the running jobs by kind; nil unless the strategy is Spread.
	runningByKind map[string]int
}

// sentOffer is an offer that no report accounts for yet.
type sentOffer struct {
	seq     int64
	at      time.Time
	byQueue map[string]int
}

// used returns how many slots are in use or reserved by offers.
func (m *member) used() int { return m.slots - m.freeSlots }

// room returns how many more jobs of the queue the member can be offered.
func (m *member) room(queue string) int {
	slots := m.freeSlots
	for other, reserved := range m.reserved {
		if other != queue {
			slots -= reserved
		}
	}
	return min(m.free[queue], slots)
}

// use takes room for jobs of a queue, its reserved slots first.
func (m *member) use(queue string, jobs int) {
	m.free[queue] -= jobs
	m.freeSlots -= jobs
	if reserved, ok := m.reserved[queue]; ok {
		m.reserved[queue] = max(0, reserved-jobs)
	}
}

// computeFree computes the remaining credit from the report and the pending offers.
func (m *member) computeFree() {
	m.free, m.freeSlots, m.reserved = maps.Clone(m.report.Free), m.report.Slots, maps.Clone(m.report.Reserved)
	if m.free == nil {
		m.free = map[string]int{}
	}
	for _, offer := range m.offers {
		for queue, n := range offer.byQueue {
			m.use(queue, n)
		}
	}
}

// nodeTable is what the leader remembers of the nodes during one term.
type nodeTable struct {
	term     int64
	strategy string
	members  []*member // nodes that can be given jobs, by node id
	// known contains all members of the term by incarnation. A member that drains and
	// returns keeps its sequence.
	known   map[string]*member
	picks   uint64
	inForce definitions
	// loggedKinds contains the unworked kinds that have been logged.
	loggedKinds map[string]bool
	// timeout is the time limit of the next statement.
	timeout time.Duration
	// earlierAt is when the last node of an earlier version had credit, which counts each claim of
	// limited jobs; zero: none had.
	earlierAt time.Time
}

func newNodeTable(term int64, strategy string) *nodeTable {
	return &nodeTable{term: term, strategy: strategy, known: map[string]*member{}, loggedKinds: map[string]bool{}, timeout: statementTimeout}
}

// setNodes replaces the node list, and keeps the state of members that stay.
func (t *nodeTable) setNodes(nodes []nodestore.Node) {
	before := t.members
	t.members = nil
	for _, n := range nodes {
		if unavailability(n) != "" || len(n.Kinds) == 0 || len(n.Queues) == 0 {
			continue
		}
		m := t.known[n.Incarnation]
		if m == nil {
			m = &member{}
			t.known[n.Incarnation] = m
		}
		m.update(n, t.inForce)
		t.members = append(t.members, m)
	}
	for _, m := range before {
		if !slices.Contains(t.members, m) {
			m.resetCredit()
		}
	}
}

// unavailability returns the state in which a node is given no jobs. It returns an empty
// string for an available node.
func unavailability(n nodestore.Node) string {
	switch {
	case !n.FencedAt.IsZero():
		return nodestore.Dead
	case n.State != nodestore.Active:
		return n.State
	default:
		return ""
	}
}

// update sets the member's fields from the node's row.
func (m *member) update(n nodestore.Node, inForce definitions) {
	m.nodeID, m.incarnation, m.clientID, m.slots = n.NodeID, n.Incarnation, n.ClientID(), n.Slots
	m.capabilities, m.tags, m.queues = n.Capabilities, n.Tags, n.Queues
	m.kinds = inForce.kindsOf(n)
}

// recordCredit records a report. It returns false for a useless one: from an unknown
// member, or older than the recorded one. After a report of another term, the member's
// credit is requested at once, because the member does not know this term yet.
func (t *nodeTable) recordCredit(report wire.Credit, now time.Time) bool {
	i := slices.IndexFunc(t.members, func(m *member) bool { return m.incarnation == report.Incarnation })
	if i < 0 {
		return false
	}
	m := t.members[i]
	if report.Term != t.term {
		m.creditRequestedAt = time.Time{}
		return true
	}
	if !m.reportedAt.IsZero() && report.Seen < m.report.Seen {
		return false
	}
	m.report, m.reportedAt = report, now
	m.offers = slices.DeleteFunc(m.offers, func(o sentOffer) bool { return o.seq <= report.Seen })
	m.computeFree()
	return true
}

// assign reserves room for a job on a member.
func (t *nodeTable) assign(m *member, j job) {
	t.picks++
	m.lastPick = t.picks
	m.use(j.queue, 1)
	if m.runningByKind != nil {
		m.runningByKind[j.kind]++
	}
}

// counting reports whether all members claim jobs that the leader has counted. A claim by a node of
// an earlier version may come as late as its offers are kept.
func (t *nodeTable) counting(now time.Time) bool {
	if slices.ContainsFunc(t.members, func(m *member) bool { return !m.reportedAt.IsZero() && !m.report.ReadsCounted }) {
		t.earlierAt = now
	}
	return t.earlierAt.IsZero() || now.Sub(t.earlierAt) > earlierClaims
}

// room returns how many more jobs of the queue can be offered to all members together.
func (t *nodeTable) room(queue string) int {
	total := 0
	for _, m := range t.members {
		total += max(0, m.room(queue))
	}
	return total
}

// queues returns the queues that any member works, sorted.
func (t *nodeTable) queues() []string {
	names := map[string]bool{}
	for _, m := range t.members {
		for queue := range m.queues {
			names[queue] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// expire removes offers that no report has accounted for within timeout. They were lost,
// or their member has a problem, so its credit is requested.
func (t *nodeTable) expire(now time.Time, timeout time.Duration) {
	for _, m := range t.members {
		before := len(m.offers)
		m.offers = slices.DeleteFunc(m.offers, func(o sentOffer) bool { return now.Sub(o.at) >= timeout })
		if len(m.offers) < before {
			m.computeFree()
			m.creditRequestedAt = time.Time{}
		}
	}
}

// nextExpiry returns when the next offer expires, or zero.
func (t *nodeTable) nextExpiry(timeout time.Duration) time.Time {
	var next time.Time
	for _, m := range t.members {
		if len(m.offers) > 0 {
			next = earliest(next, m.offers[0].at.Add(timeout))
		}
	}
	return next
}

// membersToRequest returns the members whose credit to request: those that have not reported
// and, if full is set, those that last reported no free slot.
func (t *nodeTable) membersToRequest(now time.Time, full bool) []*member {
	var members []*member
	for _, m := range t.members {
		waiting := m.reportedAt.IsZero() || m.creditRequestedAt.IsZero() || full && m.isFull() && now.Sub(m.reportedAt) >= sweepInterval
		if waiting && now.Sub(m.creditRequestedAt) >= creditRequestInterval {
			members = append(members, m)
		}
	}
	return members
}

func (m *member) isFull() bool {
	if m.freeSlots <= 0 {
		return true
	}
	for queue := range m.queues {
		if m.free[queue] <= 0 {
			return true
		}
	}
	return false
}

// resetCredit drops the credit of all members after an interrupted connection.
func (t *nodeTable) resetCredit() {
	for _, m := range t.members {
		m.resetCredit()
	}
}

// resetCredit drops the member's credit until it reports again. Its sequence continues
// because it belongs to the term.
func (m *member) resetCredit() {
	m.reportedAt, m.creditRequestedAt, m.offers, m.report = time.Time{}, time.Time{}, nil, wire.Credit{}
	m.computeFree()
}

// earliest returns the earlier of two times. Zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
