package charts

import (
	"fmt"
	"hash/fnv"
)

// paletteSize is a power of two, so that ids that differ only in their last digit, as those
// of most clusters, have different colours.
const paletteSize = 8

// Node is a node on a page: its id and its colour.
type Node struct {
	ID    string
	Color string
}

// Palette gives nodes their colours.
type Palette struct{}

// Node returns a node with its colour, which follows from its id alone: it is the same on all
// pages, and other nodes do not change it. Nodes may share a colour, so pages also show the id.
func (Palette) Node(id string) Node {
	if id == "" {
		return Node{"", "n-none"}
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id)) // never fails
	return Node{id, fmt.Sprintf("n%d", sum.Sum32()%paletteSize)}
}
