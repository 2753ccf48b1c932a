package nodestore

import (
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
)

// FilterTable declares the keys of the filters of nodes.
var FilterTable = filter.Table[Node]{
	text("node", "node-2", "the id", func(n *Node) []string { return []string{n.NodeID} }),
	{
		Key:   filter.Key{Name: "state", Type: filter.Choice, Values: []string{Active, Draining, Left, Dead}, Example: Active, About: "the state"},
		Texts: func(n *Node, _ time.Time) []string { return []string{n.State} },
	},
	text("host", "db-*", "the host", func(n *Node) []string { return []string{n.Hostname} }),
	text("version", "v1*", "the version of forge", func(n *Node) []string { return []string{n.Version} }),
	text("role", "scheduler", "a role that it may lead", func(n *Node) []string { return n.Roles }),
	text("capability", "gpu", "a capability", func(n *Node) []string { return n.Capabilities }),
	text("tag", "zone=eu*", "a tag", func(n *Node) (tags []string) {
		for name, value := range n.Tags {
			tags = append(tags, name+"="+value)
		}
		return tags
	}),
}

// Orders declares the orders of nodes.
var Orders = filter.Orders[Node]{
	{Name: "name", About: "by id"},
	{Name: "load", About: "the highest share of slots in use first", Compare: func(a, b *Node) int {
		return b.Running*max(a.Slots, 1) - a.Running*max(b.Slots, 1)
	}},
	{Name: "started", About: "the newest process first", Compare: func(a, b *Node) int { return b.StartedAt.Compare(a.StartedAt) }},
	{Name: "heartbeat", About: "the oldest heartbeat first", Compare: func(a, b *Node) int { return a.LastHeartbeatAt.Compare(b.LastHeartbeatAt) }},
}

func text(name, example, about string, texts func(*Node) []string) filter.Column[Node] {
	return filter.Column[Node]{
		Key:   filter.Key{Name: name, Example: example, About: about},
		Texts: func(n *Node, _ time.Time) []string { return texts(n) },
	}
}
