package charts

import (
	"fmt"
	"hash/fnv"
)

// paletteSize is a power of two, so that ids that differ only in their last digit, as those
// of most clusters, have different colours.
const paletteSize = 8

// Node is a node on a page: its id, its colour, and the address of its page if it has one.
type Node struct {
	ID    string
	Color string
	Path  string
}

// Palette gives nodes their colours, and links them to their pages.
type Palette struct {
	// Paths are the addresses of the pages of nodes by their ids. Rows also name nodes that are
	// not in the cluster any more, and programs that lead a role.
	Paths map[string]string
}

// Node returns a node with its colour, which follows from its id alone: it is the same on all
// pages, and other nodes do not change it. Nodes may share a colour, so pages also show the id.
func (p Palette) Node(id string) Node {
	if id == "" {
		return Node{Color: "n-none"}
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id)) // never fails
	return Node{id, fmt.Sprintf("n%d", sum.Sum32()%paletteSize), p.Paths[id]}
}
