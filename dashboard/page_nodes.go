package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/internal/nodestore"
)

type nodesBody struct {
	base
	Notice string
	Tiles  []tile
	Nodes  []nodeRow
	// Gone are the nodes that left or died.
	Gone []nodeRow
}

func (s *pageServer) loadNodes(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	b := nodesBody{base: base{name: "Nodes", beat: s.fullPulse(facts)}, Notice: drainNotice(req), Tiles: nodeTiles(facts)}
	byID := map[string]nodestore.Node{}
	for _, n := range facts.nodes {
		byID[n.NodeID] = n
	}
	for _, row := range nodeRows(facts, s.Self) {
		node := byID[row.Node.ID]
		if !node.Present() {
			b.Gone = append(b.Gone, row)
			continue
		}
		row.Facts = nodeFacts(node)
		if s.RoleOps != nil && req.may(admin) {
			row.Act = drainAct(node)
		}
		b.Nodes = append(b.Nodes, row)
	}
	return &b, nil
}

// drainAct returns the button to drain or undrain a present node.
func drainAct(n nodestore.Node) *act {
	if n.State == nodestore.Draining {
		return &act{nodePath(n.NodeID) + "/" + didUndrain, "Undrain", "play"}
	}
	return &act{nodePath(n.NodeID) + "/" + didDrain, "Drain", "pause"}
}

// nodeFacts describes the settings of a node.
func nodeFacts(n nodestore.Node) []fact {
	var tags, queues []string
	for name, value := range n.Tags {
		tags = append(tags, name+"="+value)
	}
	for name, most := range n.Queues {
		queues = append(queues, fmt.Sprintf("%s (at most %d)", name, most))
	}
	slices.Sort(tags)
	slices.Sort(queues)
	roles := slices.Clone(n.Roles)
	for i, role := range roles {
		roles[i] = roleWords(role)
	}
	return withoutEmpty([]fact{
		{"Stands for", strings.Join(roles, ", ")},
		{"Capabilities", strings.Join(n.Capabilities, ", ")},
		{"Tags", strings.Join(tags, ", ")},
		{"Queues", strings.Join(queues, ", ")},
		{"Time zones", n.TZData},
		{"Process", fmt.Sprintf("%d on %s", n.PID, n.Hostname)},
	})
}

// nodeTiles summarizes the present nodes.
func nodeTiles(facts clusterFacts) []tile {
	var present, draining, running, slots, drifting int
	versions := map[string]bool{}
	for _, row := range nodeRows(facts, Self{}) {
		if row.Drifts {
			drifting++
		}
	}
	for _, n := range facts.nodes {
		if !n.Present() {
			continue
		}
		present++
		running, slots = running+n.Running, slots+n.Slots
		versions[n.Version] = true
		if n.State == nodestore.Draining {
			draining++
		}
	}
	tiles := []tile{
		{Name: "Nodes", Value: fmt.Sprint(present), Notes: []remark{{Text: "none draining"}}, Path: "/nodes"},
		{Name: "Slots in use", Value: fmt.Sprint(running), Of: fmt.Sprint(slots), Notes: []remark{{Text: "jobs that run"}}, Path: "/jobs?state=running"},
		{Name: "Versions", Value: fmt.Sprint(len(versions)), Notes: []remark{{Text: "of forge"}}, Path: "/nodes"},
		{Name: "Drift", Value: fmt.Sprint(drifting), Notes: []remark{{Text: "all run the configuration in force"}}, Path: "/nodes"},
	}
	if draining > 0 {
		tiles[0].Notes, tiles[0].Tone = []remark{{Text: fmt.Sprintf("%d draining", draining)}}, "warn"
	}
	if len(versions) > 1 {
		tiles[2].Tone = "warn"
	}
	if drifting > 0 {
		tiles[3].Notes, tiles[3].Tone = []remark{{Text: "run another configuration"}}, "warn"
	}
	return tiles
}

// drainNotice reports the result of the form that redirected to the page.
func drainNotice(req *request) string {
	node := req.values.Get("node")
	switch req.values.Get("did") {
	case didDrain:
		return node + " is drained: it hands its roles over and gets no more jobs."
	case didUndrain:
		return node + " works again."
	default:
		return ""
	}
}
