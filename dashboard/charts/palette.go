package charts

import (
	"fmt"
	"slices"
)

// Palette assigns each node the same colour in all parts of a page.
type Palette map[string]string

const paletteSize = 8

// NewPalette assigns colours in the alphabetical order of the nodes. It repeats them if
// there are more nodes than colours.
func NewPalette(nodeIDs []string) Palette {
	ids := slices.Compact(slices.Sorted(slices.Values(nodeIDs)))
	colors := Palette{}
	for i, id := range ids {
		colors[id] = fmt.Sprintf("n%d", i%paletteSize)
	}
	return colors
}

// Node is a node on a page: its id and its colour.
type Node struct {
	ID    string
	Color string
}

// Node returns a node with its colour.
func (p Palette) Node(id string) Node {
	if color, ok := p[id]; ok {
		return Node{id, color}
	}
	return Node{id, "n-none"}
}
