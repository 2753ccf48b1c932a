package model

// Spec are the rules of the protocol. Default's are forge's; a test breaks them one
// at a time.
type Spec struct {
	// Lock lets one session at a time acquire terms.
	Lock bool
	// Lease is how many ticks the server bears a silent session; 0 is for ever.
	Lease uint8
	// Trust is how many ticks a leader trusts a renewal.
	Trust uint8
	// TrustFromReply counts them from the answer instead of the request.
	TrustFromReply bool
	// Transaction is how many ticks the server bears a silent transaction; 0 is for
	// ever.
	Transaction uint8
	// TCP is how many ticks the server bears a client that does not answer; 0 is for
	// longer than any lease.
	TCP uint8
	// Fence makes a write check its term, and a acquire wait for the writes that have.
	Fence bool
	// KeepTerms makes a new term go on from the highest one ever.
	KeepTerms bool
	// StopFirst makes a leader stop before it resigns.
	StopFirst bool

	// Faults and Terms bound what is tried.
	Faults, Terms uint8
}

// Default is forge's protocol: a trust of four fifths of the lease.
func Default() Spec {
	return Spec{
		Lock: true, Lease: 5, Trust: 4, Transaction: 5,
		Fence: true, KeepTerms: true, StopFirst: true,
		Faults: 2, Terms: 2,
	}
}

// nodes campaign for the role.
const nodes = 2

// link is a node's network.
type link uint8

const (
	whole link = iota
	cut
	mute // what the node says arrives, what it is told does not
)

// request is what a node has sent; reply what the server has answered.
type (
	request uint8
	reply   uint8
)

const (
	noRequest request = iota
	tryLock
	acquire
	renew
	unlock
	resign
)

const (
	noReply reply = iota
	won
	lost
	acquired
	busy
	renewed
	refused
	resigned
	unlocked
)

// phase is what a node takes itself for.
type phase uint8

const (
	standby phase = iota
	holding       // the lock, and no term yet
	leading
	leaving
)

// write is the one transaction that a node may have under way.
type write struct {
	term   uint8 // 0: none
	begun  bool  // else only intended
	silent uint8 // ticks in the transaction
}

// session is what the server knows of a connection.
type session struct {
	alive   bool
	locked  bool
	silent  uint8   // ticks since the server heard of it
	pending request // sent and not arrived
	term    uint8   // that the pending renewal or resignation is of
}

// node is a process.
type node struct {
	stopped bool
	link    link
	cutFor  uint8

	connected bool    // it takes current for its session
	current   session // as the server knows it
	orphan    session // half-open: given up by the node, not yet by the server
	reply     reply
	granted   uint8 // the term in the reply
	sent      uint8 // ticks since the last request

	phase phase
	term  uint8
	trust uint8
	write write
	// excused says that the session was ended otherwise than by its lease, and that
	// the node has not noticed.
	excused bool
}

// state is everything. It is comparable: a key of the states that were seen.
type state struct {
	term    uint8 // of the role's row
	owner   int8  // -1: vacant
	highest uint8 // term ever
	faults  uint8
	nodes   [nodes]node
}

func initial() state { return state{owner: -1} }

// canonical names states that differ in the names of the nodes alone alike.
func (s state) canonical() state {
	swapped := s
	swapped.nodes[0], swapped.nodes[1] = s.nodes[1], s.nodes[0]
	if s.owner >= 0 {
		swapped.owner = 1 - s.owner
	}
	if swapped.less(s) {
		return swapped
	}
	return s
}

// less is any total order of states.
func (s state) less(other state) bool {
	for i := range s.nodes {
		a, b := s.nodes[i].key(), other.nodes[i].key()
		for k := range a {
			if a[k] != b[k] {
				return a[k] < b[k]
			}
		}
	}
	return s.owner < other.owner
}

func (n node) key() [24]uint8 {
	return [...]uint8{
		bit(n.stopped), uint8(n.link), n.cutFor, bit(n.connected),
		bit(n.current.alive), bit(n.current.locked), n.current.silent, uint8(n.current.pending), n.current.term,
		bit(n.orphan.alive), bit(n.orphan.locked), n.orphan.silent, uint8(n.orphan.pending), n.orphan.term,
		uint8(n.reply), n.granted, n.sent, uint8(n.phase), n.term, n.trust,
		n.write.term, bit(n.write.begun), n.write.silent, bit(n.excused),
	}
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// leads says whether a node acts as the leader.
func (n node) leads() bool { return n.phase == leading && n.trust > 0 }

// locked says whether anybody holds the lock.
func (s state) locked() bool {
	for _, n := range s.nodes {
		if n.current.alive && n.current.locked || n.orphan.alive && n.orphan.locked {
			return true
		}
	}
	return false
}

// writing says whether a fenced transaction is open.
func (s state) writing() bool {
	for _, n := range s.nodes {
		if n.write.begun {
			return true
		}
	}
	return false
}
