package importer

import (
	"iter"

	"go.yaml.in/yaml/v3"
)

// value is a part of a YAML document. Its node is nil where the document has nothing.
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
			if !yield(v.Content[i].Value, resolved(v.Content[i+1])) {
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
		items[i] = resolved(item)
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

// resolved follows an alias. YAML allows no alias of an alias.
func resolved(node *yaml.Node) value {
	if node.Kind == yaml.AliasNode {
		return value{node.Alias}
	}
	return value{node}
}
