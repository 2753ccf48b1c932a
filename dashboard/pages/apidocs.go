package pages

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forge-scheduler/forge/dashboard/openapi"
	"github.com/forge-scheduler/forge/dashboard/web"
)

// docsBody is the body of the page that shows the OpenAPI document.
type docsBody struct {
	Groups  []docsGroup
	Schemas []docsSchema
}

type docsGroup struct {
	Name       string
	Operations []docsOperation
}

type docsOperation struct {
	openapi.Operation
	Method, Path string
	Takes        []docsField
	Answers      []docsAnswer
}

// docsAnswer is a response that is not a problem document. Media is empty for JSON.
type docsAnswer struct{ Status, Media, Schema string }

type docsSchema struct {
	Name   string
	Fields []docsField
}

type docsField struct {
	Name, Type, Of string
	Required       bool
}

func (s *Pages) apiDocs(w http.ResponseWriter, r *http.Request) {
	body, err := s.docs()
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	s.writePage(w, r, http.StatusOK, view{Kind: "apidocs", Title: "API", Self: s.Self, Body: body})
}

func newDocsBody(d openapi.Document) docsBody {
	groups := map[string]*docsGroup{}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			op := d.Paths[path][method]
			group := groups[op.Tags[0]]
			if group == nil {
				group = &docsGroup{Name: op.Tags[0]}
				groups[op.Tags[0]] = group
			}
			group.Operations = append(group.Operations, newDocsOperation(op, method, path))
		}
	}
	var b docsBody
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		b.Groups = append(b.Groups, *groups[name])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		b.Schemas = append(b.Schemas, docsSchema{name, fieldsOf(d.Components.Schemas[name])})
	}
	return b
}

func newDocsOperation(op openapi.Operation, method, path string) docsOperation {
	shown := docsOperation{Operation: op, Method: strings.ToUpper(method), Path: path}
	if op.Body != nil {
		shown.Takes = fieldsOf(op.Body.Content[web.JSONMedia].Schema)
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		for _, media := range slices.Sorted(maps.Keys(op.Responses[status].Content)) {
			if media == web.ProblemMedia {
				continue // the page describes problems once for all operations
			}
			answer := docsAnswer{Status: status, Schema: openapi.RefOf(op.Responses[status].Content[media].Schema)}
			if media != web.JSONMedia {
				answer.Media = media
			}
			shown.Answers = append(shown.Answers, answer)
		}
	}
	return shown
}

// fieldsOf returns the fields of an object in their order.
func fieldsOf(schema *jsonschema.Schema) (fields []docsField) {
	for _, name := range schema.PropertyOrder {
		kind, of := kindOf(schema.Properties[name])
		fields = append(fields, docsField{Name: name, Type: kind, Of: of, Required: slices.Contains(schema.Required, name)})
	}
	return fields
}

// kindOf describes the type of a value, and names the schema that it refers to.
func kindOf(s *jsonschema.Schema) (kind, of string) {
	types := slices.DeleteFunc(append(slices.Clone(s.Types), s.Type), func(t string) bool { return t == "" || t == "null" })
	kind = strings.Join(types, " or ")
	switch {
	case s.Ref != "":
		return "", openapi.RefOf(s)
	case len(s.AnyOf) > 0:
		return "", openapi.RefOf(s.AnyOf[0])
	case kind == "array" && s.Items != nil:
		kind, of = kindOf(s.Items)
		return strings.TrimSpace("list of " + kind), of
	case kind == "object" && s.AdditionalProperties != nil && len(s.Properties) == 0:
		kind, of = kindOf(s.AdditionalProperties)
		return strings.TrimSpace("map to " + kind), of
	default:
		return cmp.Or(s.Format, kind, "anything"), ""
	}
}
