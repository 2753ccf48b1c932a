package model

import (
	"fmt"
	"slices"
)

// Result is what an exploration found.
type Result struct {
	States int
	// Violation is the first that was met, empty when there is none, and Trace the
	// steps to it.
	Violation Violation
	Trace     []string
}

// visited is how a state was first reached.
type visited struct {
	from int32
	node int8
	name string
}

// Explore looks at every state that can be reached, breadth first, so that the trace
// to a violation is a shortest one.
func Explore(m Spec) Result {
	order := []state{initial()}
	reached := []visited{{from: -1}}
	seen := map[state]struct{}{order[0].canonical(): {}}
	for at := 0; at < len(order); at++ {
		for _, step := range m.steps(order[at]) {
			how := visited{int32(at), step.node, step.name}
			if step.breaks != "" {
				return Result{len(order), step.breaks, trace(append(reached, how))}
			}
			key := step.after.canonical()
			if _, known := seen[key]; known || key.highest > m.Terms {
				continue
			}
			seen[key] = struct{}{}
			order, reached = append(order, step.after), append(reached, how)
		}
		if !m.recovers(order[at]) {
			how := visited{int32(at), -1, fmt.Sprintf("nobody leads after %d ticks", m.bound())}
			return Result{len(order), NoLeader, trace(append(reached, how))}
		}
	}
	return Result{States: len(order)}
}

// trace lists the steps to the last state that was reached.
func trace(reached []visited) []string {
	var steps []string
	for at := len(reached) - 1; reached[at].from >= 0; at = int(reached[at].from) {
		how := reached[at].name
		if reached[at].node >= 0 {
			how = fmt.Sprintf("node %d %s", reached[at].node+1, how)
		}
		steps = append(steps, how)
	}
	slices.Reverse(steps)
	return steps
}

// bound is the ticks within which somebody must lead: a lease, in which the server
// ends what is silent, and two for the successor.
func (Spec) bound() int { return int(Default().Lease) + 2 }

// recovers says whether, for each node that runs and reaches the server from now on,
// somebody leads in time whatever becomes of the other. Nothing else goes wrong.
func (m Spec) recovers(s state) bool {
	for i := range s.nodes {
		healthy := s
		healthy.nodes[i].stopped = false
		healthy.nodes[i].link, healthy.nodes[i].cutFor = whole, 0
		if !m.leadsSoon(healthy) {
			return false
		}
	}
	return true
}

func (m Spec) leadsSoon(s state) bool {
	for range m.bound() {
		s = m.settle(s)
		for _, n := range s.nodes {
			if n.leads() && !n.stopped && n.link == whole && s.term == n.term {
				return true
			}
		}
		s = m.tick(s).after
	}
	return false
}

// settle does all that can be done before the next tick, but begins no new work. A
// stopped node's transaction stays as it is.
func (m Spec) settle(s state) state {
	for {
		next, more := m.urgent(s)
		for i := 0; i < nodes && !more; i++ {
			if s.nodes[i].link == cut {
				continue
			}
			m.arrivals(s.nodes[i], i, func(name string, do change) {
				if !more && (name != "commits" || !s.nodes[i].stopped) && name != "begins to write" {
					next, more = s.then(i, name, do), true
				}
			})
		}
		if !more {
			return s
		}
		s = next.after
	}
}
