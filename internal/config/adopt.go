package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Adopt returns what a node that runs c takes over from a file that was edited:
// next, but for the keys that cannot change while the node runs, which stay as
// they are in c. It also returns the paths of those that next would change: they
// need a restart. Neither c nor next is changed.
func (c *Config) Adopt(next *Config) (adopted *Config, restart []string) {
	copied := *next
	restart = keepFixed("", reflect.ValueOf(*c), reflect.ValueOf(&copied).Elem())
	copied.secrets = next.secrets.with(c.secrets, restart)
	return &copied, restart
}

// Means says whether c means the same as another configuration, values of secrets
// included.
func (c *Config) Means(other *Config) bool {
	one, two := *c, *other
	one.secrets, two.secrets = secrets{}, secrets{}
	return reflect.DeepEqual(one, two)
}

// keepFixed sets the fixed keys of next to what they are now and returns the
// paths of those that differed.
func keepFixed(path string, now, next reflect.Value) (differ []string) {
	for _, f := range fieldsOf(next.Type()) {
		if f.tag.Get("live") != "" {
			continue
		}
		here := join(path, f.name)
		old, edited := now.FieldByIndex(f.index), next.FieldByIndex(f.index)
		switch {
		case f.typ.Kind() == reflect.Struct:
			differ = append(differ, keepFixed(here, old, edited)...)
		case !reflect.DeepEqual(old.Interface(), edited.Interface()):
			differ = append(differ, here)
			edited.Set(old)
		}
	}
	return differ
}

// with adds what another configuration remembers of the values at and under
// some paths.
func (s secrets) with(other secrets, paths []string) secrets {
	values := slices.Concat(s.values, other.values)
	slices.Sort(values)
	out := secrets{references: maps.Clone(s.references), values: slices.Compact(values)}
	for path, known := range other.references {
		if slices.ContainsFunc(paths, func(p string) bool { return path == p || strings.HasPrefix(path, p+".") }) {
			out.remember(path, known)
		}
	}
	return out
}
