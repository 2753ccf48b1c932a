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

	"github.com/forge-scheduler/forge/internal/access"
)

// The parts of an OpenAPI 3.1 document that forge uses.
type (
	apiDocument struct {
		OpenAPI    string                             `json:"openapi"`
		Info       apiInfo                            `json:"info"`
		Servers    []apiServerInfo                    `json:"servers"`
		Tags       []apiTag                           `json:"tags"`
		Paths      map[string]map[string]apiOperation `json:"paths"`
		Components apiComponents                      `json:"components"`
	}
	apiInfo struct {
		Title       string            `json:"title"`
		Version     string            `json:"version"`
		Description string            `json:"description"`
		Contact     map[string]string `json:"contact"`
		License     map[string]string `json:"license"`
	}
	apiServerInfo struct {
		URL         string `json:"url"`
		Description string `json:"description"`
	}
	apiTag struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	apiOperation struct {
		ID          string                 `json:"operationId"`
		Tags        []string               `json:"tags"`
		Summary     string                 `json:"summary"`
		Description string                 `json:"description"`
		Parameters  []apiParameter         `json:"parameters,omitempty"`
		Body        *apiBody               `json:"requestBody,omitempty"`
		Responses   map[string]apiResponse `json:"responses"`
		// Security lists the alternative credentials; if empty, the operation needs no
		// token.
		Security []map[string][]string `json:"security"`
		// Scope is the scope that a token needs, or "open" if none is needed.
		Scope access.Scope `json:"x-forge-scope"`
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

// projectURL is the address of the project.
const projectURL = "https://github.com/forge-scheduler/forge"

// describer builds the OpenAPI document of a node.
type describer struct {
	version string
	// tokens reports whether the node requires tokens.
	tokens bool
	// fields are the schemas of fields that the Go types do not fully describe.
	fields map[reflect.Type]map[string]*jsonschema.Schema
}

// describe builds the document from the routes.
func (s describer) describe(routes []route) (apiDocument, error) {
	schemas := newSchemas(s.fields)
	doc := apiDocument{
		OpenAPI: "3.1.1",
		Info: apiInfo{
			Title: "forge", Version: cmp.Or(s.version, "unknown"),
			Description: "Every node serves every operation. Errors are problem documents (RFC 9457). A POST may carry an Idempotency-Key.",
			Contact:     map[string]string{"name": "forge", "url": projectURL},
			License:     map[string]string{"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
		},
		Servers: []apiServerInfo{{"/", "The node that serves this document."}},
		Paths:   map[string]map[string]apiOperation{},
	}
	used := map[string]bool{}
	for _, r := range routes {
		methods := map[string]apiOperation{}
		for _, way := range []struct {
			method string
			of     *operation
			scope  access.Scope
		}{{"get", r.gets, r.read}, {"post", r.posts, r.write}} {
			if way.of != nil {
				op := s.describeOne(schemas, r, way.method, way.of, way.scope)
				methods[way.method], used[op.Tags[0]] = op, true
			}
		}
		if len(methods) > 0 {
			doc.Paths[r.path] = methods
		}
	}
	doc.Tags = slices.DeleteFunc(slices.Clone(tagTexts), func(tag apiTag) bool { return !used[tag.Name] })
	doc.Components.Schemas = schemas.named
	doc.Components.SecuritySchemes = map[string]map[string]string{bearer: {
		"type": "http", "scheme": "bearer",
		"description": `A token that forge token create has made; required where dashboard.auth is "token". The x-forge-scope of an operation is the scope that it needs.`,
	}}
	return doc, schemas.err
}

func (s describer) describeOne(schemas *schemas, r route, method string, of *operation, scope access.Scope) apiOperation {
	text := operationTexts[strings.ToUpper(method)+" "+r.path]
	op := apiOperation{
		ID: text.id, Tags: []string{tagOf(r.path)}, Summary: of.summary, Description: text.about,
		Scope: scope, Security: s.securityOf(scope),
		Parameters: append(pathParameters(r.path), queryParameters(of.query)...),
	}
	wrong := map[string]apiMedia{problemMedia: {schemas.of(reflect.TypeFor[problem]())}}
	op.Responses = map[string]apiResponse{
		"4XX":     {Description: "The request is refused; the detail says why.", Content: wrong},
		"default": {Description: "The node cannot answer now.", Content: wrong},
	}
	for _, answer := range of.all() {
		describeReply(answer, schemas, op.Responses, method)
	}
	if isRateLimited(r.path) {
		op.Responses[strconv.Itoa(http.StatusTooManyRequests)] = apiResponse{
			Description: fmt.Sprintf("More than %d requests a second, or %d at once.", callsPerSecond, callsAtOnce), Content: wrong,
			Headers: map[string]apiHeader{retryHeader: {"How many seconds to wait.", &jsonschema.Schema{Type: "integer"}}},
		}
	}
	if method == "post" {
		op.takes(schemas, of)
	}
	return op
}

// takes adds the body and the header of a POST.
func (op *apiOperation) takes(schemas *schemas, of *operation) {
	body := schemas.body(cmp.Or(of.body, reflect.TypeFor[struct{}]()))
	op.Body = &apiBody{Required: len(body.Required) > 0, Content: map[string]apiMedia{jsonMedia: {body}}}
	op.Parameters = append(op.Parameters, apiParameter{
		Name: keyHeader, In: "header", Description: of.keyMeans(),
		Schema: &jsonschema.Schema{Type: "string"},
	})
}

// securityOf returns the alternative credentials of an operation: a token, or none if the
// node requires none.
func (s describer) securityOf(scope access.Scope) []map[string][]string {
	withToken := map[string][]string{bearer: {}}
	switch {
	case scope == open:
		return []map[string][]string{}
	case !s.tokens:
		return []map[string][]string{{}, withToken}
	default:
		return []map[string][]string{withToken}
	}
}

// describeReply adds a reply to the responses of its status.
func describeReply(a reply, schemas *schemas, responses map[string]apiResponse, method string) {
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
		response.Headers[repeatHeader] = apiHeader{"Set if the answer is that of an earlier request.", &jsonschema.Schema{Type: "boolean"}}
	}
	for _, name := range a.headers {
		response.Headers[name] = apiHeader{headersAbout[name], &jsonschema.Schema{Type: "string"}}
	}
	responses[status] = response
}

// tagOf returns the tag of an operation: the first significant word of its path.
func tagOf(path string) string {
	words := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
	words = slices.DeleteFunc(words, func(w string) bool { return w == "api" || w == "v1" || w == "bulk" })
	return cmp.Or(tagOfWord[words[0]], words[0])
}

func pathParameters(path string) (all []apiParameter) {
	for _, found := range placeholder.FindAllStringSubmatch(path, -1) {
		schema := &jsonschema.Schema{Type: "string"}
		switch found[1] {
		case "id":
			schema.Type, schema.Minimum = "integer", new(1.0)
		case "tick":
			schema.Format = "date-time"
		}
		all = append(all, apiParameter{Name: found[1], In: "path", Required: true, Description: pathTexts[found[1]], Schema: schema})
	}
	return all
}

func queryParameters(query []parameter) (all []apiParameter) {
	for _, p := range query {
		schema := p.schema()
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

// schema returns the schema of one value of the parameter.
func (p parameter) schema() *jsonschema.Schema {
	schema := &jsonschema.Schema{Type: p.kind}
	switch p.kind {
	case "date-time":
		schema.Type, schema.Format = "string", p.kind
	case "integer":
		schema.Minimum = new(float64(p.least))
	}
	if p.most > 0 {
		schema.Maximum = new(float64(p.most))
	}
	if p.usual > 0 {
		schema.Default = json.RawMessage(strconv.Itoa(p.usual))
	}
	for _, value := range p.oneOf {
		schema.Enum = append(schema.Enum, value)
	}
	return schema
}

// describeOnce builds the document on the first request for it. The routes do not change
// afterwards.
func (s *apiServer) describeOnce() (document func() (apiDocument, error), text func() ([]byte, error)) {
	document = sync.OnceValues(func() (apiDocument, error) {
		return describer{version: s.Self.Version, tokens: s.Tokens != nil, fields: ownFields}.describe(s.routes())
	})
	text = sync.OnceValues(func() ([]byte, error) {
		doc, err := document()
		if err != nil {
			return nil, err
		}
		return json.Marshal(doc)
	})
	return document, text
}

func (s *apiServer) apiOpenAPI(w http.ResponseWriter, r *http.Request) {
	text, err := s.documentText()
	if err != nil {
		s.answerUndescribed(w, r, err)
		return
	}
	w.Header().Set("Content-Type", jsonMedia)
	_, _ = w.Write(text) // the client is gone
}

// answerUndescribed answers that the OpenAPI document could not be built.
func (s *responder) answerUndescribed(w http.ResponseWriter, r *http.Request, err error) {
	s.logger.ErrorContext(r.Context(), "describe the API", "error", err)
	s.fail(w, r, http.StatusInternalServerError, "The API cannot be described.")
}
