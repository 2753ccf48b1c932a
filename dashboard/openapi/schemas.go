package openapi

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/leaderstore"
)

const refPrefix = "#/components/schemas/"

// RefOf returns the name of the schema that a schema refers to; empty if to none.
func RefOf(s *jsonschema.Schema) string { return strings.TrimPrefix(s.Ref, refPrefix) }

// schemas collects the JSON schemas of the Go types in the API. Each struct has a unique
// name.
type schemas struct {
	named map[string]*jsonschema.Schema
	types map[string]reflect.Type
	// refs are the references to named types.
	refs map[reflect.Type]*jsonschema.Schema
	// fields are the schemas of fields that the Go types do not fully describe.
	fields map[reflect.Type]map[string]*jsonschema.Schema
	// names are the names of types whose names do not follow from their packages.
	names map[reflect.Type]string
	err   error
}

func newSchemas(fields map[reflect.Type]map[string]*jsonschema.Schema, names map[reflect.Type]string) *schemas {
	return &schemas{
		fields: fields, names: names,
		named: map[string]*jsonschema.Schema{}, types: map[string]reflect.Type{},
		refs: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[json.RawMessage](): {Description: "Any JSON."},
			reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
			reflect.TypeFor[config.Duration](): {Type: "string", Description: "A duration such as 90s or 2d."},
			reflect.TypeFor[config.UniqueArgs](): {
				Description: "True for all arguments, or the names of those that count.",
				AnyOf:       []*jsonschema.Schema{{Type: "boolean"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}}},
			},
		},
	}
}

// typesAbout describes types whose names are not sufficient.
var typesAbout = map[reflect.Type]string{
	reflect.TypeFor[leaderstore.LockHolder](): "The session that holds the lock of a role although the role has no leader.",
	reflect.TypeFor[aggregator.Rate]():        "How many of a number of attempts succeeded since an instant.",
}

// of returns a reference to a struct, or the schema of another type.
func (s *schemas) of(t reflect.Type) *jsonschema.Schema {
	s.name(t)
	if ref := s.refs[t]; ref != nil {
		return ref.CloneSchemas()
	}
	return s.make(t)
}

// body returns the schema of a POST body. Only fields with the tag body:"required" are
// required.
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

// name adds the schemas of a type and of all structs that it refers to.
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
	name := s.nameOf(t)
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

// make returns the schema of a type, with references to the structs in it.
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
	for name, own := range s.fields[t] {
		if schema.Properties[name] == nil {
			schema.PropertyOrder = append(schema.PropertyOrder, name)
		}
		schema.Properties[name] = own.CloneSchemas() // a copy, because it is changed below and all documents share fields
	}
	for name, property := range schema.Properties {
		fixNullability(property, slices.Contains(schema.Required, name))
	}
	return schema
}

// fixNullability corrects the nullability of a property. Only a reference in a field that
// is always present may be null. Lists, maps and optional fields may not.
func fixNullability(s *jsonschema.Schema, required bool) {
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

// embeds reports whether a struct embeds another.
func embeds(t, other reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	return slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Anonymous && f.Type == other })
}

// nameOf returns the name of a type in the document: jobstore.Job is Job, and
// jobstore.Attempt is JobAttempt. The name of a list derives from its items.
func (s *schemas) nameOf(t reflect.Type) string {
	if name, ok := s.names[t]; ok {
		return name
	}
	if items, ok := t.FieldByName("Items"); ok && strings.HasPrefix(t.Name(), "List[") {
		return s.nameOf(items.Type.Elem()) + "List"
	}
	name := format.Capital(t.Name())
	prefix := format.Capital(strings.TrimSuffix(path.Base(t.PkgPath()), "store"))
	if strings.Contains(t.PkgPath(), "/dashboard") || strings.HasPrefix(name, prefix) {
		return name
	}
	return prefix + name
}
