package model

// deliver serves what a node's session has sent, and answers.
func (m Spec) deliver(s *state, i int, n *node) Violation {
	answer, breaks := m.serve(s, i, &n.current)
	if n.reply = answer; answer == acquired {
		n.granted = s.term
	}
	return breaks
}

// arrivals lists what may reach the server now or later: the last words of a session
// that its node gave up, and the statements of a write.
func (m Spec) arrivals(n node, i int, add func(name string, do change)) {
	switch {
	case n.orphan.alive && n.orphan.pending != noRequest:
		add("is heard late", func(s *state, n *node) Violation {
			_, breaks := m.serve(s, i, &n.orphan)
			return breaks
		})
	case n.orphan.alive:
		add("is known to have gone", quietly(func(n *node) { n.orphan = session{} }))
	}
	switch {
	case n.write.term != 0 && !n.write.begun:
		add("begins to write", func(s *state, n *node) Violation { m.begin(s, i, n); return "" })
	case n.write.begun:
		add("commits", m.commit)
	}
}

// serve does what a session's pending request asks.
func (m Spec) serve(s *state, i int, c *session) (answer reply, breaks Violation) {
	asked, term := c.pending, c.term
	c.pending, c.silent, c.term = noRequest, 0, 0
	owns := s.owner == int8(i) && s.term == term
	switch asked {
	case tryLock:
		if m.Lock && s.locked() {
			return lost, ""
		}
		c.locked = true
		return won, ""
	case acquire:
		return m.acquire(s, i)
	case renew:
		if !owns {
			return refused, ""
		}
		return renewed, ""
	case unlock:
		c.locked = false
		return unlocked, ""
	case resign:
		c.locked = false
		if owns {
			s.owner = -1
			if !m.KeepTerms {
				s.term = 0 // the row is deleted
			}
		}
		return resigned, ""
	case noRequest:
	}
	return noReply, ""
}

// acquire begins a term, unless a write of the last one is under way.
func (m Spec) acquire(s *state, i int) (answer reply, breaks Violation) {
	if m.Fence && s.writing() {
		return busy, ""
	}
	for j, other := range s.nodes {
		if j != i && other.leads() && !other.excused {
			breaks = Overlap
		}
	}
	base := s.term
	if m.KeepTerms {
		base = max(base, s.highest)
	}
	s.term, s.owner = base+1, int8(i)
	if s.term <= s.highest {
		breaks = TermNotAbove
	}
	s.highest = max(s.highest, s.term)
	return acquired, breaks
}

// begin opens a transaction, past the fence if the term is current.
func (m Spec) begin(s *state, i int, n *node) {
	if m.Fence && (s.term != n.write.term || s.owner != int8(i)) {
		n.write = write{}
		return
	}
	n.write.begun, n.write.silent = true, 0
}

func (Spec) commit(s *state, n *node) Violation {
	stale := n.write.term < s.highest || n.write.term != s.term
	n.write = write{}
	if stale {
		return StaleWrite
	}
	return ""
}
