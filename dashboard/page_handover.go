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

// handOverBody is the confirmation page of a hand-over or a drain.
type handOverBody struct {
	base
	Title, Verb, Icon string
	// What describes the effect. Refused is the reason why it is not possible.
	What, Refused string
	// Targets are the nodes that a role can be transferred to; empty for other actions.
	Targets []string
	Path    string
	Back    string
	BackTo  string
}

// loadHandOver loads the confirmation page of a hand-over.
func loadHandOver(transfer bool) func(*pageServer, context.Context, *request) (body, error) {
	return func(s *pageServer, ctx context.Context, req *request) (body, error) {
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		role := req.values.Get("role")
		i := slices.IndexFunc(facts.leaders, func(l leaderstore.Leader) bool { return l.Role == role })
		if i < 0 {
			return nil, errNoSuchRole
		}
		b := &handOverBody{
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

func (b *handOverBody) judge(facts clusterFacts, leader leaderstore.Leader, transfer bool) {
	candidates := handover.Candidates(facts.nodes, leader)
	switch {
	case !leader.Leads():
		b.Refused = "It has no leader now."
	case len(candidates) == 0:
		b.Refused = "No other node can lead it."
	default:
		b.What = fmt.Sprintf("%s leads in term %d. It completes its current work, and the next leader continues within a tenth of a second. No tick is lost.",
			leader.NodeID, leader.Term)
	}
	if transfer {
		b.Targets = candidates
	}
}

// loadDrain loads the confirmation page of a drain or an undrain.
func loadDrain(drain bool) func(*pageServer, context.Context, *request) (body, error) {
	return func(s *pageServer, ctx context.Context, req *request) (body, error) {
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		id := req.values.Get("node")
		i := slices.IndexFunc(facts.nodes, func(n nodestore.Node) bool { return n.NodeID == id })
		if i < 0 {
			return nil, errNoSuchNode
		}
		node := facts.nodes[i]
		b := &handOverBody{
			base:  base{name: "Drain " + id, beat: s.pulseOf(facts)},
			Title: "Drain " + id + "?", Verb: "Drain", Icon: "pause", Path: nodePath(id) + "/" + didDrain, Back: "/nodes", BackTo: "Nodes",
			What: "Its roles go to other nodes, and it gets no more jobs. " + runningWords(node.Running) + " It stays drained until it is undrained or restarted.",
		}
		if !drain {
			b.name, b.Title, b.Verb, b.Icon, b.Path = "Undrain "+id, "Undrain "+id+"?", "Undrain", "play", nodePath(id)+"/"+didUndrain
			b.What = "It can lead roles and gets jobs again."
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
	return plural(running, "running job continues.", "running jobs continue.")
}
