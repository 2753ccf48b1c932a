package dashboard

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/leaderstore"
)

// schemas are those of the Go types that the API takes and answers, each struct
// under a name of its own.
type schemas struct {
	named map[string]*jsonschema.Schema
	types map[string]reflect.Type
	// refs are what stands for a type where another names it.
	refs map[reflect.Type]*jsonschema.Schema
	err  error
}

func newSchemas() *schemas {
	return &schemas{
		named: map[string]*jsonschema.Schema{}, types: map[string]reflect.Type{},
		refs: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[json.RawMessage](): {Description: "Any JSON."},
			reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
			reflect.TypeFor[config.Duration](): {Type: "string", Description: "A duration such as 90s or 2d."},
		},
	}
}

// ownFields are those of which the Go type does not say all.
var ownFields = map[reflect.Type]map[string]*jsonschema.Schema{
	reflect.TypeFor[enqueueAsk]():         {"priority": bounded("", "", 4, 0).schema()},
	reflect.TypeFor[backfillAsk]():        {"limit": bounded("", "", maxBackfill, defaultBackfill).schema()},
	reflect.TypeFor[leaderstore.Tenure](): {"gap_ms": {Type: "number"}},
	reflect.TypeFor[config.FieldChange](): {"from": configValue("in force"), "to": configValue("in the file")},
}

// configValue is a value of any type that a configuration has. A list of all types would
// say the same, and generators of clients do not read it.
func configValue(where string) *jsonschema.Schema {
	return &jsonschema.Schema{Description: "The value " + where + ", of any type; null: the key is missing."}
}

// typesAbout says of types what their names do not.
var typesAbout = map[reflect.Type]string{
	reflect.TypeFor[leaderstore.LockHolder](): "The session that holds the lock of a role although the role has no leader.",
}

// of returns a reference to a struct, and else the schema of a type.
func (s *schemas) of(t reflect.Type) *jsonschema.Schema {
	s.name(t)
	if ref := s.refs[t]; ref != nil {
		return ref.CloneSchemas()
	}
	return s.make(t)
}

// body is the schema of what a POST takes, in which every field may be missing but
// those that are tagged so.
func (s *schemas) body(t reflect.Type) *jsonschema.Schema {
	schema := s.make(t)
	schema.Required = nil
	for _, f := range reflect.VisibleFields(t) {
		if f.Tag.Get("body") == "required" {
			schema.Required = append(schema.Required, f.Tag.Get("json"))
		}
	}
	for _, property := range schema.Properties {
		kinds := slices.DeleteFunc(slices.Clone(property.Types), isNull)
		property.Types, property.Type = nil, strings.Join(append(kinds, property.Type), "")
	}
	return schema
}

func isNull(kind string) bool { return kind == "null" }

// name gives every struct that a type leads to a name and a schema.
func (s *schemas) name(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		s.name(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if s.refs[t] != nil || t.Name() == "" {
		return
	}
	name := schemaName(t)
	if other := s.types[name]; other != nil && s.err == nil {
		s.err = fmt.Errorf("the types %s and %s are both called %s", other, t, name)
	}
	s.types[name] = t
	s.refs[t] = &jsonschema.Schema{Ref: refPrefix + name}
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() && !f.Anonymous && f.Tag.Get("json") != "-" {
			s.name(f.Type)
		}
	}
	s.named[name] = s.make(t)
	s.named[name].Description = typesAbout[t]
}

// make writes the schema of a type out, with references to the structs in it.
func (s *schemas) make(t reflect.Type) *jsonschema.Schema {
	known := map[reflect.Type]*jsonschema.Schema{}
	for of, ref := range s.refs {
		if of != t && !embeds(t, of) {
			known[of] = ref
		}
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		if s.err == nil {
			s.err = fmt.Errorf("describe %s: %w", t, err)
		}
		return &jsonschema.Schema{}
	}
	for name, own := range ownFields[t] {
		if schema.Properties[name] == nil {
			schema.PropertyOrder = append(schema.PropertyOrder, name)
		}
		schema.Properties[name] = own.CloneSchemas() // it is changed below, and servers share what is known of fields
	}
	for name, property := range schema.Properties {
		tidy(property, slices.Contains(schema.Required, name))
	}
	return schema
}

// tidy lets a reference be null if the field is always there; lists and maps are never
// null, and no field is that would be left out.
func tidy(s *jsonschema.Schema, required bool) {
	if s.Ref != "" && len(s.Types) > 0 {
		ref := *s
		ref.Types, s.Ref, s.Types = nil, "", nil
		if !required {
			*s = ref
			return
		}
		s.AnyOf = []*jsonschema.Schema{&ref, {Type: "null"}}
	}
	rest := slices.DeleteFunc(slices.Clone(s.Types), isNull)
	if len(rest) == 1 && (!required || rest[0] == "array" || rest[0] == "object") {
		s.Types, s.Type = nil, rest[0]
	}
}

// embeds says whether a struct has another among its embedded ones.
func embeds(t, other reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	return slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Anonymous && f.Type == other })
}

// schemaName is what a type is called in the document: jobstore.Job is Job, and
// jobstore.Attempt JobAttempt. A list is called after what is in it.
func schemaName(t reflect.Type) string {
	if items, ok := t.FieldByName("Items"); ok && strings.HasPrefix(t.Name(), "list[") {
		return schemaName(items.Type.Elem()) + "List"
	}
	name := capital(t.Name())
	prefix := capital(strings.TrimSuffix(path.Base(t.PkgPath()), "store"))
	if prefix == "Dashboard" || strings.HasPrefix(name, prefix) {
		return name
	}
	return prefix + name
}

func capital(name string) string {
	first, size := utf8.DecodeRuneInString(name)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + name[size:]
}
