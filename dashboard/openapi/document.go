// Package openapi builds the OpenAPI document of the routes from their Go types.
package openapi

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/tracing"
)

// The parts of an OpenAPI 3.1 document that forge uses.
type (
	// Document is the whole document.
	Document struct {
		OpenAPI    string                          `json:"openapi"`
		Info       apiInfo                         `json:"info"`
		Servers    []apiServerInfo                 `json:"servers"`
		Tags       []apiTag                        `json:"tags"`
		Paths      map[string]map[string]Operation `json:"paths"`
		Components apiComponents                   `json:"components"`
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
	// Operation is a method of a path.
	Operation struct {
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

// projectURL is the address of the project.
const projectURL = "https://github.com/forge-scheduler/forge"

// Describer builds the OpenAPI document of a node.
type Describer struct {
	Version string
	// Tokens reports whether the node requires tokens.
	Tokens bool
	// Fields are the schemas of fields that the Go types do not fully describe.
	Fields map[reflect.Type]map[string]*jsonschema.Schema
	// Names are the names of types whose names do not follow from their packages.
	Names map[reflect.Type]string
}

// Describe builds the document from the routes.
func (s Describer) Describe(routes []route.Route) (Document, error) {
	schemas := newSchemas(s.Fields, s.Names)
	doc := Document{
		OpenAPI: "3.1.1",
		Info: apiInfo{
			Title: "forge", Version: cmp.Or(s.Version, "unknown"),
			Description: "Every node serves every operation. Errors are problem documents (RFC 9457). A POST may carry an Idempotency-Key.",
			Contact:     map[string]string{"name": "forge", "url": projectURL},
			License:     map[string]string{"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
		},
		Servers: []apiServerInfo{{"/", "The node that serves this document."}},
		Paths:   map[string]map[string]Operation{},
	}
	used := map[string]bool{}
	for _, r := range routes {
		methods := map[string]Operation{}
		for _, way := range []struct {
			method string
			of     *route.Operation
			scope  access.Scope
		}{{"get", r.Gets, r.Read}, {"post", r.Posts, r.Write}} {
			if way.of != nil {
				op := s.describeOne(schemas, r, way.method, way.of, way.scope)
				methods[way.method], used[op.Tags[0]] = op, true
			}
		}
		if len(methods) > 0 {
			doc.Paths[r.Path] = methods
		}
	}
	doc.Tags = slices.DeleteFunc(slices.Clone(tagTexts), func(tag apiTag) bool { return !used[tag.Name] })
	doc.Components.Schemas = schemas.named
	doc.Components.SecuritySchemes = map[string]map[string]string{web.Bearer: {
		"type": "http", "scheme": "bearer",
		"description": `A token that forge token create has made; required where dashboard.auth is "token". The x-forge-scope of an operation is the scope that it needs.`,
	}}
	return doc, schemas.err
}

func (s Describer) describeOne(schemas *schemas, r route.Route, method string, of *route.Operation, scope access.Scope) Operation {
	op := Operation{
		ID: of.ID, Tags: []string{tagOf(r.Path)}, Summary: of.Summary, Description: of.About,
		Scope: scope, Security: s.securityOf(scope),
		Parameters: append(pathParameters(r.Path), queryParameters(of.Query)...),
	}
	wrong := map[string]apiMedia{web.ProblemMedia: {schemas.of(reflect.TypeFor[web.Problem]())}}
	op.Responses = map[string]apiResponse{
		"4XX":     {Description: "The request is refused; the detail says why.", Content: wrong},
		"default": {Description: "The node cannot answer now.", Content: wrong},
	}
	for _, answer := range append([]route.Reply{of.Reply}, of.Also...) {
		describeReply(answer, schemas, op.Responses, method)
	}
	if route.IsRateLimited(r.Path) {
		op.Responses[strconv.Itoa(http.StatusTooManyRequests)] = apiResponse{
			Description: fmt.Sprintf("More than %d requests a second, or %d at once.", auth.CallsPerSecond, auth.CallsAtOnce), Content: wrong,
			Headers: map[string]apiHeader{web.RetryHeader: {"How many seconds to wait.", &jsonschema.Schema{Type: "integer"}}},
		}
	}
	if method == "post" {
		op.takes(schemas, of)
	}
	return op
}

// takes adds the body and the headers of a POST.
func (op *Operation) takes(schemas *schemas, of *route.Operation) {
	body := schemas.body(of.Body)
	op.Body = &apiBody{Required: len(body.Required) > 0, Content: map[string]apiMedia{web.JSONMedia: {body}}}
	means := "A repeat gets the answer of the first request"
	if of.Secret != "" {
		means += ", without " + of.Secret
	}
	if of.Traced {
		op.Parameters = append(op.Parameters, apiParameter{
			Name: tracing.KeyParent, In: "header", Schema: &jsonschema.Schema{Type: "string"},
			Description: "The parent of the trace, as in W3C Trace Context. An invalid one is ignored.",
		}, apiParameter{
			Name: tracing.KeyState, In: "header", Schema: &jsonschema.Schema{Type: "string"},
			Description: "Further values of the trace. Ignored without a valid " + tracing.KeyParent + ".",
		})
	}
	op.Parameters = append(op.Parameters, apiParameter{
		Name: route.KeyHeader, In: "header", Schema: &jsonschema.Schema{Type: "string"},
		Description: means + ". A repeat with another body or address, or while the first request runs, gets 409.",
	})
}

// securityOf returns the alternative credentials of an operation: a token, or none if the
// node requires none.
func (s Describer) securityOf(scope access.Scope) []map[string][]string {
	withToken := map[string][]string{web.Bearer: {}}
	switch {
	case scope == route.Open:
		return []map[string][]string{}
	case !s.Tokens:
		return []map[string][]string{{}, withToken}
	default:
		return []map[string][]string{withToken}
	}
}

// describeReply adds a reply to the responses of its status.
func describeReply(a route.Reply, schemas *schemas, responses map[string]apiResponse, method string) {
	status := strconv.Itoa(a.Status)
	response, known := responses[status]
	if !known {
		response = apiResponse{Description: http.StatusText(a.Status), Headers: map[string]apiHeader{}, Content: map[string]apiMedia{}}
	}
	schema := &jsonschema.Schema{Type: "string"}
	if a.Answer != nil {
		schema = schemas.of(a.Answer)
	}
	response.Content[cmp.Or(a.Media, web.JSONMedia)] = apiMedia{schema}
	if method == "post" {
		response.Headers[route.RepeatHeader] = apiHeader{"Set if the answer is that of an earlier request.", &jsonschema.Schema{Type: "boolean"}}
	}
	for _, name := range a.Headers {
		response.Headers[name] = apiHeader{route.HeadersAbout[name], &jsonschema.Schema{Type: "string"}}
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
	for _, found := range route.Placeholder.FindAllStringSubmatch(path, -1) {
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

func queryParameters(query []route.Parameter) (all []apiParameter) {
	for _, p := range query {
		schema := p.Schema()
		switch {
		case p.Many:
			schema = &jsonschema.Schema{Type: "array", Items: schema}
		case p.Family:
			schema = &jsonschema.Schema{Type: "object", PatternProperties: map[string]*jsonschema.Schema{"^" + p.Name + "\\.": schema}}
		}
		all = append(all, apiParameter{Name: p.Name, In: "query", Required: p.Required, Description: p.About, Schema: schema})
	}
	return all
}

// pathTexts describe the path parameters.
var pathTexts = map[string]string{
	"alert":   "The name of the alert.",
	"group":   "The id of the group, from the list of groups.",
	"hash":    "The hash of the configuration, or its first digits.",
	"id":      "The id of the job.",
	"kind":    "The name of the kind.",
	"name":    "The name of the cron, the queue or the token.",
	"node":    "The id of the node.",
	"role":    "The name of the role, such as scheduler.",
	"session": "The id of the session, from the list of sessions.",
	"term":    "The number of the term, or latest.",
	"tick":    "The time of the tick (RFC 3339).",
}

// tagTexts describe the tags.
var tagTexts = []apiTag{
	{"activity", "Events and audit entries in one stream."},
	{"alerts", "Alerts, their occurrences, their silences and their notifications."},
	{"audit", "Who did what."},
	{"cluster", "The state of the cluster, its events and its checks."},
	{"configuration", "The file of a node and the configuration in force."},
	{"crons", "Crons and their ticks."},
	{"dead-letters", "Jobs that have failed for good."},
	{"jobs", "Jobs, their output and their kinds."},
	{"leaders", "Roles, their leaders and hand-overs."},
	{"metrics", "Metrics for Prometheus, and their recorded values."},
	{"node", "Probes of one node, and this document."},
	{"nodes", "The nodes of the cluster."},
	{"queues", "Queues and limits."},
	{"storage", "The log compactor and the size of the tables."},
	{"tokens", "Tokens of callers, and sessions of users."},
}

// tagOfWord maps the first word of a path to its tag, for words that are not tags
// themselves.
var tagOfWord = map[string]string{
	"apply": "configuration", "config": "configuration", "plan": "configuration", "settings": "configuration",
	"compaction": "storage", "dead": "dead-letters",
	"doctor": "cluster", "events": "cluster", "healthz": "node", "job-counts": "jobs", "kinds": "jobs",
	"leader": "node", "limits": "queues", "next": "crons", "openapi.json": "node", "readyz": "node",
	"whoami": "tokens", "sessions": "tokens",
}
