package model

// Violation is what a state breaks; empty is nothing.
type Violation string

// The invariants, by the names that a test expects.
const (
	StaleWrite   Violation = "stale write"
	TermNotAbove Violation = "term not above"
	Overlap      Violation = "overlap"
	NoLeader     Violation = "no leader"
)

// step is something that may happen in a state, to a node or (-1) to all.
type step struct {
	node   int8
	name   string
	after  state
	breaks Violation
}

// change is what a step does, to a state and to one node of it.
type change func(s *state, n *node) Violation

// quietly makes a change of something that breaks nothing by itself.
func quietly(do func(n *node)) change {
	return func(_ *state, n *node) Violation { do(n); return "" }
}

// then is the state after a change.
func (s state) then(i int, name string, do change) step {
	after := s
	breaks := do(&after, &after.nodes[i])
	return step{int8(i), name, after, breaks}
}

// steps lists all that may happen next. What takes no time happens before anything
// else, but for faults: they strike at any point.
func (m Spec) steps(s state) []step {
	var steps []step
	if s.faults < m.Faults {
		for i := range s.nodes {
			m.fault(s, i, func(name string, do change) {
				struck := s.then(i, name, do)
				struck.after.faults++
				steps = append(steps, struck)
			})
		}
	}
	if next, urgent := m.urgent(s); urgent {
		return append(steps, next)
	}
	steps = append(steps, m.tick(s))
	for i := range s.nodes {
		m.leisure(s, i, func(name string, do change) { steps = append(steps, s.then(i, name, do)) })
	}
	return steps
}

// urgent is the first thing that takes no time.
func (m Spec) urgent(s state) (step, bool) {
	for i, n := range s.nodes {
		if n.link != cut && n.current.alive && n.current.pending != noRequest {
			return s.then(i, "is heard", func(s *state, n *node) Violation { return m.deliver(s, i, n) }), true
		}
		if n.stopped {
			continue
		}
		if name, do := m.client(n); do != nil {
			return s.then(i, name, quietly(do)), true
		}
	}
	return step{}, false
}

// tick lets time pass: trust runs out, and the server ends what was silent for too
// long.
func (m Spec) tick(s state) step {
	for i := range s.nodes {
		n := &s.nodes[i]
		n.trust -= min(n.trust, 1)
		n.sent = min(n.sent+1, m.Trust)
		if n.link != whole {
			n.cutFor = min(n.cutFor+1, m.TCP)
		}
		m.age(n, &n.current)
		m.age(n, &n.orphan)
		if n.write.begun {
			if n.write.silent = min(n.write.silent+1, m.Transaction); m.Transaction > 0 && n.write.silent >= m.Transaction {
				n.write = write{}
			}
		}
	}
	return step{node: -1, name: "a tick passes", after: s}
}

func (m Spec) age(n *node, c *session) {
	if !c.alive {
		return
	}
	c.silent = min(c.silent+1, m.Lease)
	if m.Lease > 0 && c.silent >= m.Lease || m.TCP > 0 && n.cutFor >= m.TCP {
		*c = session{}
	}
}

// client is what a node that runs does at once.
func (m Spec) client(n node) (name string, do func(n *node)) {
	idle := n.current.pending == noRequest && n.reply == noReply
	switch {
	case !n.connected && n.link == whole && !n.current.alive:
		return "connects", func(n *node) { n.connected, n.current = true, session{alive: true, silent: 1} }
	case !n.connected:
		return "", nil
	case n.phase == leading && n.trust == 0, n.phase == leaving && n.sent >= m.Trust:
		return "gives up", (*node).giveUp
	case n.reply != noReply && n.link == whole:
		return "hears", m.hear
	case !n.current.alive && n.link == whole:
		return "notices the end of its session", (*node).giveUp
	case idle && n.phase == standby && n.current.silent > 0:
		return "tries the lock", func(n *node) { n.say(tryLock) }
	case idle && n.phase == holding:
		return "acquires", func(n *node) { n.say(acquire) }
	case idle && n.leads() && n.sent > 0:
		return "renews", func(n *node) { n.say(renew) }
	default:
		return "", nil
	}
}

func (n *node) say(r request) { n.current.pending, n.current.term, n.sent = r, n.term, 0 }

// leisure lists what may be done now or later.
func (m Spec) leisure(s state, i int, add func(name string, do change)) {
	n := s.nodes[i]
	if n.stopped {
		add("wakes", quietly(func(n *node) { n.stopped = false }))
	}
	if n.link != whole {
		add("is reached again", quietly(func(n *node) { n.link, n.cutFor = whole, 0 }))
	}
	if n.leads() && !n.stopped && n.write.term == 0 {
		add("intends to write", quietly(func(n *node) { n.write.term = n.term }))
	}
	if n.leads() && !n.stopped && n.current.pending == noRequest && n.reply == noReply && (n.write.term == 0 || !m.StopFirst) {
		add("resigns", quietly(m.leave))
	}
	if n.link != cut {
		m.arrivals(n, i, add)
	}
}

// leave stops the work and resigns.
func (m Spec) leave(n *node) {
	n.say(resign)
	if m.StopFirst {
		n.phase, n.trust = leaving, 0
	}
}

// hear takes the server's answer.
func (m Spec) hear(n *node) {
	answer := n.reply
	n.reply = noReply
	left := m.Trust - n.sent
	if m.TrustFromReply {
		left = m.Trust
	}
	switch answer {
	case won:
		n.phase = holding
	case acquired:
		n.phase, n.trust, n.term, n.granted = leading, left, n.granted, 0
		if left == 0 {
			n.giveUp()
		}
	case renewed:
		n.trust = left
	case busy:
		n.current.pending = unlock
	case refused:
		n.giveUp()
	case lost, resigned, unlocked:
		n.phase, n.trust, n.term = standby, 0, 0
	case noReply:
	}
}

// giveUp ends a node's lead and closes its session, which the server may not hear of.
func (n *node) giveUp() {
	n.phase, n.trust, n.term, n.reply, n.granted, n.excused = standby, 0, 0, noReply, 0, false
	n.connected = false
	if n.current.alive && !n.orphan.alive {
		n.orphan = n.current
	}
	n.current = session{}
}

// fault lists what may go wrong.
func (m Spec) fault(s state, i int, add func(name string, do change)) {
	n := s.nodes[i]
	if !n.stopped {
		add("is stopped", func(_ *state, n *node) Violation { n.stopped = true; return "" })
	}
	if n.link == whole {
		add("is cut off", func(_ *state, n *node) Violation { n.link = cut; return "" })
		add("loses the replies", func(_ *state, n *node) Violation { n.link = mute; return "" })
	}
	if n.connected {
		add("is killed", func(_ *state, n *node) Violation {
			n.giveUp()
			n.stopped = false
			if !n.write.begun || n.link != cut { // else the server waits for the commit
				n.write = write{}
			}
			return ""
		})
	}
	if n.current.alive {
		add("has its session terminated", func(_ *state, n *node) Violation { n.current, n.excused = session{}, true; return "" })
	}
	if i == 0 {
		add("sees the server restart", func(s *state, _ *node) Violation { s.restart(); return "" })
	}
}

// restart ends every session and transaction; what was committed stays.
func (s *state) restart() {
	for i := range s.nodes {
		n := &s.nodes[i]
		n.excused = n.excused || n.current.alive
		n.current, n.orphan = session{}, session{}
		if n.write.begun {
			n.write = write{}
		}
	}
}
