package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// moveBody asks whether a hand-over or a drain is really meant.
type moveBody struct {
	base
	Title, Verb, Icon string
	// What says what happens; Refused why it cannot.
	What, Refused string
	// Targets are the nodes that a role can be handed to; empty where none is asked for.
	Targets []string
	Path    string
	Back    string
	BackTo  string
}

// loadHandOver is the page that asks before a leader is told to hand over.
func loadHandOver(transfer bool) func(*server, context.Context, *request) (body, error) {
	return func(s *server, ctx context.Context, ask *request) (body, error) {
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		role := ask.values.Get("role")
		i := slices.IndexFunc(facts.leaders, func(l leaderstore.Leader) bool { return l.Role == role })
		if i < 0 {
			return nil, errNoSuchRole
		}
		b := &moveBody{
			base:  base{name: "Step down: " + roleWords(role), beat: s.pulseOf(facts)},
			Title: "Have another node lead as " + roleWords(role) + "?", Verb: "Step down", Icon: "stop",
			Path: rolePath(role) + "/" + didStepDown, Back: "/leaders", BackTo: "Leadership",
		}
		if transfer {
			b.name, b.Verb, b.Icon, b.Path = "Transfer: "+roleWords(role), "Transfer", "retry", rolePath(role)+"/"+didTransfer
		}
		b.judge(facts, facts.leaders[i], transfer)
		return b, nil
	}
}

func (b *moveBody) judge(facts clusterFacts, leader leaderstore.Leader, transfer bool) {
	candidates := handover.Candidates(facts.nodes, leader)
	switch {
	case !leader.Leads():
		b.Refused = "Nobody leads it now."
	case len(candidates) == 0:
		b.Refused = "No other node can lead it."
	default:
		b.What = fmt.Sprintf("%s leads in term %d. It finishes what it has begun, and the next leader goes on from there within a tenth of a second. No tick is lost.",
			leader.NodeID, leader.Term)
	}
	if transfer {
		b.Targets = candidates
	}
}

// loadDrain is the page that asks before a node is drained, or let back in.
func loadDrain(drain bool) func(*server, context.Context, *request) (body, error) {
	return func(s *server, ctx context.Context, ask *request) (body, error) {
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		id := ask.values.Get("node")
		i := slices.IndexFunc(facts.nodes, func(n nodestore.Node) bool { return n.NodeID == id })
		if i < 0 {
			return nil, errNoSuchNode
		}
		node := facts.nodes[i]
		b := &moveBody{
			base:  base{name: "Drain " + id, beat: s.pulseOf(facts)},
			Title: "Drain " + id + "?", Verb: "Drain", Icon: "pause", Path: nodePath(id) + "/" + didDrain, Back: "/nodes", BackTo: "Nodes",
			What: "Its roles go to other nodes, and it is given no more jobs. " + runningWords(node.Running) + " It stays so until it is undrained or starts anew.",
		}
		if !drain {
			b.name, b.Title, b.Verb, b.Icon, b.Path = "Undrain "+id, "Let "+id+" work again?", "Undrain", "play", nodePath(id)+"/"+didUndrain
			b.What = "It stands for roles and is given jobs again."
		}
		if !node.Present() {
			b.Refused = cmp.Or(map[string]string{nodestore.Dead: "It is dead."}[node.State], "It has left.")
		}
		return b, nil
	}
}

func runningWords(running int) string {
	if running == 0 {
		return "It runs no job now."
	}
	return plural(running, "job that it runs goes on.", "jobs that it runs go on.")
}
