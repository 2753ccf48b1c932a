package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
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
	wrong := map[string]apiMedia{problemMedia: {schemas.of(reflect.TypeFor[problem]())}}
	op.Responses = map[string]apiResponse{"default": {Description: "What went wrong.", Content: wrong}}
	for _, answer := range of.all() {
		answer.describe(schemas, op.Responses, method)
	}
	if isPaced(r.path) {
		op.Responses[strconv.Itoa(http.StatusTooManyRequests)] = apiResponse{
			Description: fmt.Sprintf("More than %d requests a second, or %d at once.", callsPerSecond, callsAtOnce), Content: wrong,
			Headers: map[string]apiHeader{retryHeader: {"How many seconds to wait.", &jsonschema.Schema{Type: "integer"}}},
		}
	}
	if method == "post" {
		body := schemas.body(cmp.Or(of.body, reflect.TypeFor[struct{}]()))
		op.Body = &apiBody{Required: len(body.Required) > 0, Content: map[string]apiMedia{jsonMedia: {body}}}
		op.Parameters = append(op.Parameters, apiParameter{
			Name: keyHeader, In: "header", Description: of.keyMeans(),
			Schema: &jsonschema.Schema{Type: "string"},
		})
	}
	return op
}

// describe adds an answer to those of its status.
func (a reply) describe(schemas *schemas, responses map[string]apiResponse, method string) {
	status := strconv.Itoa(a.status)
	response, known := responses[status]
	if !known {
		response = apiResponse{Description: http.StatusText(a.status), Headers: map[string]apiHeader{}, Content: map[string]apiMedia{}}
	}
	schema := &jsonschema.Schema{Type: "string"}
	if a.answer != nil {
		schema = schemas.of(a.answer)
	}
	response.Content[cmp.Or(a.media, jsonMedia)] = apiMedia{schema}
	if method == "post" {
		response.Headers[repeatHeader] = apiHeader{"Stands where the answer was given before.", &jsonschema.Schema{Type: "boolean"}}
	}
	for _, name := range a.headers {
		response.Headers[name] = apiHeader{headersAbout[name], &jsonschema.Schema{Type: "string"}}
	}
	responses[status] = response
}

// tagOf groups operations by what they are about.
func tagOf(words []string) string {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "api" || w == "v1" || w == "bulk" })
	switch first := words[0]; first {
	case "healthz", "readyz", "leader", "openapi.json":
		return "node"
	case "limits":
		return "queues"
	case "kinds", "job-counts":
		return "jobs"
	case "dead-letters":
		return "dead"
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
		for _, value := range p.oneOf {
			schema.Enum = append(schema.Enum, value)
		}
		switch {
		case p.many:
			schema = &jsonschema.Schema{Type: "array", Items: schema}
		case p.family:
			schema = &jsonschema.Schema{Type: "object", PatternProperties: map[string]*jsonschema.Schema{"^" + p.name + "\\.": schema}}
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
