package importer

import (
	"fmt"
	"iter"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds the parts of one document after its aliases have been replaced: a few lines of
// aliases of aliases can stand for billions.
const maxNodes = 200_000

// expander replaces aliases by what they stand for, and merge keys (<<) by the keys that they merge.
type expander struct {
	nodes int
	open  map[*yaml.Node]bool // from the document to the current node
}

func (e *expander) expand(node *yaml.Node) (*yaml.Node, error) {
	line := node.Line
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if e.nodes++; e.nodes > maxNodes {
		return nil, fmt.Errorf("line %d: a document with more than %d parts, with those that its aliases repeat; want fewer", line, maxNodes)
	}
	if len(node.Content) == 0 {
		return node, nil
	}
	if e.open[node] {
		return nil, fmt.Errorf("line %d: the alias *%s contains itself; want the text in its place", line, node.Anchor)
	}
	e.open[node] = true
	defer delete(e.open, node)
	expanded := *node
	expanded.Content = make([]*yaml.Node, len(node.Content))
	for i, child := range node.Content {
		var err error
		if expanded.Content[i], err = e.expand(child); err != nil {
			return nil, err
		}
	}
	if expanded.Kind == yaml.MappingNode {
		expanded.Content = merged(expanded.Content)
	}
	return &expanded, nil
}

// merged returns the keys and values of a table with those that it merges. Its own keys take
// precedence, then those of earlier tables (https://yaml.org/type/merge.html).
func merged(pairs []*yaml.Node) []*yaml.Node {
	var own, others []*yaml.Node
	for i := 0; i+1 < len(pairs); i += 2 {
		switch key, from := pairs[i], pairs[i+1]; {
		case key.Tag != "!!merge":
			own = append(own, key, from)
		case from.Kind == yaml.SequenceNode:
			for _, table := range from.Content {
				others = append(others, table.Content...)
			}
		default:
			others = append(others, from.Content...)
		}
	}
	known := map[string]bool{}
	for i := 0; i < len(own); i += 2 {
		known[own[i].Value] = true
	}
	for i := 0; i+1 < len(others); i += 2 {
		if name := others[i].Value; !known[name] {
			known[name], own = true, append(own, others[i], others[i+1])
		}
	}
	return own
}

// value is a part of an expanded YAML document. Its node is nil where the document has nothing.
type value struct{ *yaml.Node }

// get returns the value at a path of keys.
func (v value) get(path ...string) value {
	for _, key := range path {
		next := value{}
		for name, child := range v.pairs() {
			if name == key {
				next = child
			}
		}
		v = next
	}
	return v
}

// pairs yields the keys and values of a table.
func (v value) pairs() iter.Seq2[string, value] {
	return func(yield func(string, value) bool) {
		if v.Node == nil || v.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(v.Content); i += 2 {
			if !yield(v.Content[i].Value, value{v.Content[i+1]}) {
				return
			}
		}
	}
}

func (v value) list() []value {
	if v.Node == nil || v.Kind != yaml.SequenceNode {
		return nil
	}
	items := make([]value, len(v.Content))
	for i, item := range v.Content {
		items[i] = value{item}
	}
	return items
}

// text returns a scalar as it is written. It is empty for null and for what is not a scalar.
func (v value) text() string {
	if v.Node == nil || v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
		return ""
	}
	return v.Value
}

// or returns the value, or another for its place in the document.
func (v value) or(other value) value {
	switch {
	case v.Node != nil:
		return v
	case other.Node != nil:
		return other
	default:
		return value{&yaml.Node{Line: 1, Column: 1}}
	}
}
