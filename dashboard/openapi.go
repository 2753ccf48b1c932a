package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// The parts of an OpenAPI 3.1 document that forge's has.
type (
	apiDocument struct {
		OpenAPI    string                             `json:"openapi"`
		Info       apiInfo                            `json:"info"`
		Paths      map[string]map[string]apiOperation `json:"paths"`
		Components apiComponents                      `json:"components"`
		Security   []map[string][]string              `json:"security,omitempty"`
	}
	apiInfo struct {
		Title       string `json:"title"`
		Version     string `json:"version"`
		Description string `json:"description"`
	}
	apiOperation struct {
		ID         string                 `json:"operationId"`
		Tags       []string               `json:"tags"`
		Summary    string                 `json:"summary"`
		Parameters []apiParameter         `json:"parameters,omitempty"`
		Body       *apiBody               `json:"requestBody,omitempty"`
		Responses  map[string]apiResponse `json:"responses"`
		Security   []map[string][]string  `json:"security,omitempty"`
		// Scope is the scope that a token needs; "open": none is asked for.
		Scope tokenstore.Scope `json:"x-forge-scope"`
	}
	apiParameter struct {
		Name        string             `json:"name"`
		In          string             `json:"in"`
		Required    bool               `json:"required,omitempty"`
		Description string             `json:"description,omitempty"`
		Schema      *jsonschema.Schema `json:"schema"`
	}
	apiBody struct {
		Required bool                `json:"required,omitempty"`
		Content  map[string]apiMedia `json:"content"`
	}
	apiResponse struct {
		Description string               `json:"description"`
		Headers     map[string]apiHeader `json:"headers,omitempty"`
		Content     map[string]apiMedia  `json:"content,omitempty"`
	}
	apiHeader struct {
		Description string             `json:"description"`
		Schema      *jsonschema.Schema `json:"schema"`
	}
	apiMedia struct {
		Schema *jsonschema.Schema `json:"schema"`
	}
	apiComponents struct {
		Schemas         map[string]*jsonschema.Schema `json:"schemas"`
		SecuritySchemes map[string]map[string]string  `json:"securitySchemes"`
	}
)

const (
	jsonMedia    = "application/json"
	problemMedia = "application/problem+json"
	bearer       = "token"
)

// describeAPI makes the document of the routes.
func (s *server) describeAPI() (apiDocument, error) {
	schemas := newSchemas()
	doc := apiDocument{
		OpenAPI: "3.1.1",
		Info: apiInfo{
			Title: "forge", Version: cmp.Or(s.Self.Version, "unknown"),
			Description: "Every node answers everything. Errors are problem documents (RFC 9457). A POST may carry an Idempotency-Key.",
		},
		Paths: map[string]map[string]apiOperation{},
	}
	for _, r := range s.routes() {
		methods := map[string]apiOperation{}
		for _, way := range []struct {
			method string
			of     *operation
			scope  tokenstore.Scope
		}{{"get", r.gets, r.read}, {"post", r.posts, r.write}} {
			if way.of != nil {
				methods[way.method] = s.describeOne(schemas, r, way.method, way.of, way.scope)
			}
		}
		if len(methods) > 0 {
			doc.Paths[r.path] = methods
		}
	}
	doc.Components.Schemas = schemas.named
	doc.Components.SecuritySchemes = map[string]map[string]string{bearer: {"type": "http", "scheme": "bearer"}}
	return doc, schemas.err
}

func (s *server) describeOne(schemas *schemas, r route, method string, of *operation, scope tokenstore.Scope) apiOperation {
	words := strings.FieldsFunc(r.path, func(c rune) bool { return strings.ContainsRune("/{}", c) })
	op := apiOperation{
		ID: strings.Join(append([]string{method}, words...), "_"), Tags: []string{tagOf(words)}, Summary: of.summary, Scope: scope,
		Parameters: append(pathParameters(r.path), queryParameters(of.query)...),
	}
	if s.Tokens != nil && scope != open {
		op.Security = []map[string][]string{{bearer: {}}}
	}
	success := apiResponse{Description: http.StatusText(of.status), Content: map[string]apiMedia{}}
	if of.answer == nil {
		success.Content[of.media] = apiMedia{&jsonschema.Schema{Type: "string"}}
	} else {
		success.Content[cmp.Or(of.media, jsonMedia)] = apiMedia{schemas.of(of.answer)}
	}
	wrong := map[string]apiMedia{problemMedia: {schemas.of(reflect.TypeFor[problem]())}}
	if method == "post" {
		success.Headers = map[string]apiHeader{repeatHeader: {"Stands where the answer was given before.", &jsonschema.Schema{Type: "boolean"}}}
	}
	op.Responses = map[string]apiResponse{
		strconv.Itoa(of.status): success,
		"default":               {Description: "What went wrong.", Content: wrong},
	}
	if isPaced(r.path) {
		op.Responses[strconv.Itoa(http.StatusTooManyRequests)] = apiResponse{
			Description: fmt.Sprintf("More than %d requests a second, or %d at once.", callsPerSecond, callsAtOnce), Content: wrong,
			Headers: map[string]apiHeader{retryHeader: {"How many seconds to wait.", &jsonschema.Schema{Type: "integer"}}},
		}
	}
	if method == "post" {
		body := cmp.Or(of.body, reflect.TypeFor[struct{}]())
		op.Body = &apiBody{Content: map[string]apiMedia{jsonMedia: {schemas.body(body)}}}
		op.Parameters = append(op.Parameters, apiParameter{
			Name: keyHeader, In: "header", Description: of.keyMeans(),
			Schema: &jsonschema.Schema{Type: "string"},
		})
	}
	return op
}

// tagOf groups operations by what they are about.
func tagOf(words []string) string {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "api" || w == "v1" || w == "bulk" })
	switch first := words[0]; first {
	case "healthz", "readyz", "leader", "openapi.json":
		return "node"
	case "limits":
		return "queues"
	default:
		return first
	}
}

func pathParameters(path string) (all []apiParameter) {
	for _, found := range placeholder.FindAllStringSubmatch(path, -1) {
		schema := &jsonschema.Schema{Type: "string"}
		switch found[1] {
		case "id":
			schema.Type = "integer"
		case "tick":
			schema.Format = "date-time"
		}
		all = append(all, apiParameter{Name: found[1], In: "path", Required: true, Schema: schema})
	}
	return all
}

func queryParameters(query []parameter) (all []apiParameter) {
	for _, p := range query {
		schema := &jsonschema.Schema{Type: p.kind}
		if p.kind == "date-time" {
			schema.Type, schema.Format = "string", p.kind
		}
		all = append(all, apiParameter{Name: p.name, In: "query", Required: p.required, Description: p.about, Schema: schema})
	}
	return all
}

// description is the API's document, for programs and for people.
type description struct {
	text []byte
	page docsBody
}

// describeOnce makes the document when it is first asked for: the routes stay as they are.
func (s *server) describeOnce() func() (description, error) {
	return sync.OnceValues(func() (description, error) {
		doc, err := s.describeAPI()
		if err != nil {
			return description{}, err
		}
		text, err := json.Marshal(doc)
		return description{text, doc.page()}, err
	})
}

// withDescription answers by the document.
func (s *server) withDescription(answer func(w http.ResponseWriter, r *http.Request, d description)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := s.described()
		if err != nil {
			s.Logger.ErrorContext(r.Context(), "describe the API", "error", err)
			s.fail(w, r, http.StatusInternalServerError, "The API cannot be described.")
			return
		}
		answer(w, r, d)
	}
}

func (s *server) apiOpenAPI(w http.ResponseWriter, _ *http.Request, d description) {
	w.Header().Set("Content-Type", jsonMedia)
	_, _ = w.Write(d.text) // the client is gone
}

// docsBody is the document as people read it.
type docsBody struct {
	Groups  []docsGroup
	Schemas []docsSchema
}

type docsGroup struct {
	Name       string
	Operations []docsOperation
}

type docsOperation struct {
	apiOperation
	Method, Path string
	Takes        []docsField
	Answers      string
	Status       string
}

type docsSchema struct {
	Name   string
	Fields []docsField
}

type docsField struct {
	Name, Type, Of string
	Required       bool
}

func (s *server) apiDocs(w http.ResponseWriter, r *http.Request, d description) {
	s.writePage(w, r, http.StatusOK, view{Kind: "apidocs", Title: "API", Self: s.Self, Settings: s.Settings != nil, Body: d.page})
}

func (d apiDocument) page() docsBody {
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

func newDocsOperation(op apiOperation, method, path string) docsOperation {
	shown := docsOperation{apiOperation: op, Method: strings.ToUpper(method), Path: path}
	if op.Body != nil {
		shown.Takes = fieldsOf(op.Body.Content[jsonMedia].Schema)
	}
	for status, response := range op.Responses {
		for media, content := range response.Content {
			if status == "default" {
				continue
			}
			shown.Status, shown.Answers = status, refOf(content.Schema)
			if shown.Answers == "" {
				shown.Status += " " + media
			}
		}
	}
	return shown
}

// fieldsOf are the fields of an object, in their order.
func fieldsOf(schema *jsonschema.Schema) (fields []docsField) {
	for _, name := range schema.PropertyOrder {
		kind, of := kindOf(schema.Properties[name])
		fields = append(fields, docsField{Name: name, Type: kind, Of: of, Required: slices.Contains(schema.Required, name)})
	}
	return fields
}

// kindOf describes a value, and names the schema that it leads to.
func kindOf(s *jsonschema.Schema) (kind, of string) {
	types := slices.DeleteFunc(append(slices.Clone(s.Types), s.Type), func(t string) bool { return t == "" || t == "null" })
	kind = strings.Join(types, " or ")
	switch {
	case s.Ref != "":
		return "", refOf(s)
	case len(s.AnyOf) > 0:
		return "", refOf(s.AnyOf[0])
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

const refPrefix = "#/components/schemas/"

func refOf(s *jsonschema.Schema) string { return strings.TrimPrefix(s.Ref, refPrefix) }
