package config

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// field is a key of a table, as the struct tags describe it.
type field struct {
	name  string
	index []int
	typ   reflect.Type
	tag   reflect.StructTag
}

// refs says whether the field's strings may hold references to secrets.
func (f field) refs() bool { return f.tag.Get("refs") != "" }

// knownFields and knownTables keep the results of fieldsOf and tableOf: a million crons are a
// million structs of one type.
var knownFields, knownTables sync.Map

// fieldsOf lists the keys of a struct; those of an embedded struct count as its
// own. The caller must not change the result.
func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]field) //nolint:forcetypeassert // nothing else is stored
	}
	known, _ := knownFields.LoadOrStore(t, findFields(t))
	return known.([]field) //nolint:forcetypeassert // nothing else is stored
}

// tableOf returns fieldsOf by name. The caller must not change the result.
func tableOf(t reflect.Type) map[string]field {
	if known, ok := knownTables.Load(t); ok {
		return known.(map[string]field) //nolint:forcetypeassert // nothing else is stored
	}
	fields := map[string]field{}
	for _, f := range fieldsOf(t) {
		fields[f.name] = f
	}
	known, _ := knownTables.LoadOrStore(t, fields)
	return known.(map[string]field) //nolint:forcetypeassert // nothing else is stored
}

func findFields(t reflect.Type) []field {
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		if name != "" {
			fields = append(fields, field{name: name, index: f.Index, typ: f.Type, tag: f.Tag})
		}
	}
	return fields
}

func fieldNames(t reflect.Type) []string {
	fields := fieldsOf(t)
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// key is a key that stands alone: its path has no name that the user chose.
type key struct {
	path string
	field
}

// override is the environment variable that overrides the key.
func (k key) override() string {
	return "FORGE_" + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// scalarKeys lists the keys that one environment variable can hold: those of the
// sections that stand once in a file.
func scalarKeys() []key {
	return slices.DeleteFunc(scalars(configType, "", nil), func(k key) bool { return !strings.Contains(k.path, ".") })
}

func scalars(t reflect.Type, path string, indexes []int) []key {
	var keys []key
	for _, f := range fieldsOf(t) {
		f.index = slices.Concat(indexes, f.index)
		here := join(path, f.name)
		switch {
		case f.typ.Kind() == reflect.Struct:
			keys = append(keys, scalars(f.typ, here, f.index)...)
		case f.typ.Kind() == reflect.Map:
		case f.typ.Kind() == reflect.Slice && f.typ.Elem().Kind() != reflect.String:
		default:
			keys = append(keys, key{path: here, field: f})
		}
	}
	return keys
}

// mayBeSecret says whether a key of this name, in any table, may hold a reference to a
// secret, and so a secret.
func mayBeSecret(name string) bool {
	return slices.Contains(secretNames(reflect.TypeFor[Config]()), name)
}

// secretNames lists the names of the keys in a struct, at every depth, that may hold
// references.
func secretNames(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(t) {
		inner := f.typ
		for inner.Kind() == reflect.Map || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		switch {
		case f.refs():
			names = append(names, f.name)
		case inner.Kind() == reflect.Struct && inner != t:
			names = append(names, secretNames(inner)...)
		}
	}
	return names
}
