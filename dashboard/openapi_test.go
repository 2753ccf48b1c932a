package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/openapi"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

const documentURL = "https://forge.test/openapi.json"

// servedDocument returns the document as a program reads it, and a compiler with its
// schemas.
func servedDocument(t *testing.T, h http.Handler) (openapi.Document, *validator.Compiler) {
	t.Helper()
	w := get(t, h, "/api/v1/openapi.json")
	if w.Code != http.StatusOK || w.Body.String() != get(t, h, "/api/openapi.json").Body.String() {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	tree, err := validator.UnmarshalJSON(strings.NewReader(w.Body.String()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := validator.NewCompiler()
	compiler.DefaultDraft(validator.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(documentURL, tree); err != nil {
		t.Fatal(err)
	}
	return decode[openapi.Document](t, w), compiler
}

// check validates JSON against a schema of the document.
func check(t *testing.T, compiler *validator.Compiler, where, text string) error {
	t.Helper()
	schema, err := compiler.Compile(documentURL + "#" + where)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := validator.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(tree)
}

func TestTheDocumentIsOpenAPI(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	text, err := os.ReadFile(filepath.Join("testdata", "openapi-3.1.json"))
	if err != nil {
		t.Fatal(err)
	}
	meta, err := validator.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := validator.NewCompiler()
	if err := compiler.AddResource("https://spec.openapis.org/oas/3.1/schema", meta); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("https://spec.openapis.org/oas/3.1/schema")
	if err != nil {
		t.Fatal(err)
	}
	w := requestAs(t, h, "viewer", http.MethodGet, "/api/openapi.json")
	tree, err := validator.UnmarshalJSON(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(tree); err != nil {
		t.Error(err)
	}
	if w := requestAs(t, h, "", http.MethodGet, "/api/openapi.json"); w.Code != http.StatusUnauthorized {
		t.Errorf("to a stranger: %d", w.Code)
	}
}

// The document contains exactly the routes for programs, with their scopes.
func TestTheDocumentHasEveryRoute(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	doc, compiler := servedDocument(t, handlerOf(c))
	want, got := map[string]string{}, map[string]string{}
	for _, r := range newServer(c).routes() {
		if !web.ForPrograms(r.Path) || r.Path == "/events" || strings.HasPrefix(r.Path, "/static/") {
			continue // pages
		}
		if r.Get != nil {
			want["get "+r.Path] = string(r.Read)
		}
		if r.Post != nil {
			want["post "+r.Path] = string(r.Write)
		}
	}
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			got[method+" "+path] = string(op.Scope)
			if got, paced := op.Responses["429"]; paced != strings.HasPrefix(path, "/api/") || paced && got.Headers[web.RetryHeader].Schema == nil {
				t.Errorf("%s %s: too many requests are answered %+v", method, path, got)
			}
			if ids[op.ID] || op.Summary == "" {
				t.Errorf("%s %s: the id %s, %q", method, path, op.ID, op.Summary)
			}
			ids[op.ID] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-routes +document):\n%s", diff)
	}
	for name := range doc.Components.Schemas {
		if _, err := compiler.Compile(documentURL + "#/components/schemas/" + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each operation has a name for generated clients, a description and a described tag.
func TestDocumentDescribesEveryOperation(t *testing.T) {
	t.Parallel()
	doc, _ := servedDocument(t, handlerOf(dashboardtest.New()))
	tags := map[string]bool{}
	for _, tag := range doc.Tags {
		tags[tag.Name] = false
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if !operationID.MatchString(op.ID) || op.Description == "" {
				t.Errorf("%s %s: operationId %q, description %q", method, path, op.ID, op.Description)
			}
			if _, described := tags[op.Tags[0]]; !described {
				t.Errorf("%s %s: the tag %s has no description", method, path, op.Tags[0])
			}
			tags[op.Tags[0]] = true
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s %s: %s has no description", method, path, p.Name)
				}
			}
		}
	}
	for tag, used := range tags {
		if !used {
			t.Errorf("no operation has the tag %s", tag)
		}
	}
}

var operationID = regexp.MustCompile(`^[a-z][A-Za-z0-9]+$`)

// Operations that add jobs take the caller's trace.
func TestDocumentHasHeadersOfTraces(t *testing.T) {
	t.Parallel()
	document, _ := servedDocument(t, handlerOf(dashboardtest.New()))
	for path, traced := range map[string]bool{
		"/api/v1/jobs": true, "/api/v1/crons/{name}/trigger": true, "/api/v1/crons/{name}/backfill": true, "/api/v1/crons/{name}/pause": false,
	} {
		var found []string
		for _, p := range document.Paths[path]["post"].Parameters {
			if p.In == "header" {
				found = append(found, p.Name)
			}
		}
		want := []string{"Idempotency-Key"}
		if traced {
			want = []string{"traceparent", "tracestate", "Idempotency-Key"}
		}
		if !slices.Equal(found, want) {
			t.Errorf("POST %s has the headers %q, want %q", path, found, want)
		}
	}
}

// Operations that need a scope require a token if the node requires tokens.
func TestDocumentStatesWhoNeedsToken(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	guardedDoc, err := makeServer(options).api.Document()
	if err != nil {
		t.Fatal(err)
	}
	openDoc, err := makeServer(optionsOf(dashboardtest.New())).api.Document()
	if err != nil {
		t.Fatal(err)
	}
	token := map[string][]string{web.Bearer: {}}
	for path, methods := range guardedDoc.Paths {
		for method, op := range methods {
			wantGuarded, wantOpen := []map[string][]string{token}, []map[string][]string{{}, token}
			if op.Scope == route.Open {
				wantGuarded, wantOpen = []map[string][]string{}, []map[string][]string{}
			}
			if diff := cmp.Diff(wantGuarded, op.Security); diff != "" {
				t.Errorf("%s %s with tokens (-want +got):\n%s", method, path, diff)
			}
			if diff := cmp.Diff(wantOpen, openDoc.Paths[path][method].Security); diff != "" {
				t.Errorf("%s %s without tokens (-want +got):\n%s", method, path, diff)
			}
		}
	}
}

// Handlers enforce the bounds of parameters in the document.
func TestBoundsOfParametersAreKept(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	doc, _ := servedDocument(t, h)
	bounded := 0
	for path, r := range addresses(newServer(c)) {
		for _, p := range doc.Paths[r.Path]["get"].Parameters {
			if p.In != "query" || p.Schema.Type != "integer" {
				continue
			}
			separator := "?"
			if strings.Contains(path, "?") {
				separator = "&"
			}
			status := func(value float64) int {
				return ask(t, h, http.MethodGet, fmt.Sprintf("%s%s%s=%.0f", path, separator, p.Name, value)).Code
			}
			least := *p.Schema.Minimum
			if at, below := status(least), status(least-1); at != http.StatusOK || below != http.StatusBadRequest {
				t.Errorf("%s: %s=%v is answered %d, and one less %d", path, p.Name, least, at, below)
			}
			if p.Schema.Maximum == nil {
				if p.Name == "limit" {
					t.Errorf("%s: limit has no maximum", path)
				}
				continue
			}
			bounded++
			most := *p.Schema.Maximum
			if at, above := status(most), status(most+1); at != http.StatusOK || above != http.StatusBadRequest {
				t.Errorf("%s: %s=%v is answered %d, and one more %d", path, p.Name, most, at, above)
			}
		}
	}
	if bounded == 0 {
		t.Error("no parameter has a maximum")
	}
}

// No list or map may be null, and no schema is just true, because generators do not support
// that.
func TestDocumentDeclaresNoNullLists(t *testing.T) {
	t.Parallel()
	doc, _ := servedDocument(t, handlerOf(dashboardtest.New()))
	for name, schema := range doc.Components.Schemas {
		for field, property := range schema.Properties {
			list := slices.Contains(property.Types, "array") || slices.Contains(property.Types, "object")
			if list && slices.Contains(property.Types, "null") {
				t.Errorf("%s.%s may be null", name, field)
			}
		}
	}
	for _, field := range []string{"from", "to"} {
		if schema := doc.Components.Schemas["ConfigFieldChange"].Properties[field]; schema.Description == "" {
			t.Errorf("ConfigFieldChange.%s: %+v", field, schema)
		}
	}
}

// The document explains when a key is rejected, and which session lock_holder is.
func TestTheDocumentExplainsKeysAndLockHolders(t *testing.T) {
	t.Parallel()
	doc, _ := servedDocument(t, handlerOf(dashboardtest.New()))
	for path, methods := range doc.Paths {
		if op, posts := methods["post"]; posts && !strings.Contains(op.Parameters[len(op.Parameters)-1].Description, "409") {
			t.Errorf("%s does not say what a key refuses", path)
		}
	}
	holder := doc.Components.Schemas["LeaderLockHolder"]
	if holder == nil || !strings.Contains(holder.Description, "holds the lock") {
		t.Errorf("lock_holder: %+v", holder)
	}
}

// postBodies are bodies that succeed, by the end of the path.
var postBodies = map[string]string{
	"/revert":       `{"yes": true}`,
	"/api/v1/jobs":  `{"kind": "dump", "args": {"table": "users"}, "priority": 2, "at": "2026-11-21T02:00:00Z"}`,
	"/trigger":      `{"args": {"full": true}}`,
	"/backfill":     `{"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z", "limit": 7}`,
	"/transfer":     `{"to": "node-2"}`,
	"/silence":      `{"for": "2h", "reason": "we move"}`,
	"/crons/pause":  `{"all": true, "reason": "we move"}`,
	"/crons/resume": `{"all": true}`,
	"/crons/undo":   `{"operation": "OPERATION1"}`,
	"/tokens":       `{"name": "cd", "scope": "operator", "expires": "2d"}`,
}

func bodyFor(path string) string {
	for suffix, body := range postBodies {
		if strings.HasSuffix(path, suffix) {
			return body
		}
	}
	if strings.HasPrefix(path, "/api/v1/bulk/") {
		return `{"kind": "dump"}`
	}
	return "{}"
}

// Each operation answers. The helper of all tests compares the answers with the document,
// including errors.
func TestAnswersAreAsDocumented(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Audit = []access.AuditEntry{{ID: 1, At: dashboardtest.Epoch, Actor: "a", Source: "b", Action: "c", Outcome: "done"}}
	h := handlerOf(c)
	doc, compiler := servedDocument(t, h)
	for path, r := range addresses(newServer(c)) {
		for method, op := range doc.Paths[r.Path] {
			where := "/paths/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(r.Path) + "/" + method
			body := bodyFor(path)
			w := ask(t, h, strings.ToUpper(method), path)
			if method == "post" {
				w = post(t, h, path, jsonType, body)
				if err := check(t, compiler, where+"/requestBody/content/application~1json/schema", body); err != nil {
					t.Errorf("%s: the body %s: %v", path, body, err)
				}
			}
			if w.Code >= http.StatusMultipleChoices {
				t.Errorf("%s %s: %d\n%s", method, path, w.Code, w.Body)
			}
			if method != "post" {
				continue
			}
			for _, field := range op.Body.Content[web.JSONMedia].Schema.Required {
				var fields map[string]any
				_ = json.Unmarshal([]byte(body), &fields)
				delete(fields, field)
				without, _ := json.Marshal(fields)
				if w := post(t, h, path, jsonType, string(without)); w.Code != http.StatusUnprocessableEntity {
					t.Errorf("%s does without %s, which is said to be required: %d", path, field, w.Code)
				}
			}
			wrong := post(t, h, path, jsonType, `{"no such": 1}`)
			documented := "there are none"
			if fields := op.Body.Content[web.JSONMedia].Schema.Properties; len(fields) > 0 {
				documented = fmt.Sprintf("%d fields", len(fields))
			}
			if detail := decode[web.Problem](t, wrong).Errors[0].Detail; fieldCount(detail) != documented {
				t.Errorf("%s is documented to take %s, and says: %s", path, documented, detail)
			}
		}
	}
}

// fieldCount returns the number of fields in the answer to an unknown field.
func fieldCount(detail string) string {
	_, fields, some := strings.Cut(detail, "the fields are ")
	if !some {
		return strings.TrimPrefix(detail, "is unknown; ")
	}
	return fmt.Sprintf("%d fields", len(strings.Split(fields, ", ")))
}

// The check detects extra, missing and wrongly typed fields in an answer.
func TestAnswersThatAreNotAsDocumented(t *testing.T) {
	t.Parallel()
	_, compiler := servedDocument(t, handlerOf(dashboardtest.New()))
	for _, c := range []struct{ name, text string }{
		{"JobEnqueued", `{"id": 1, "kind": "a", "state": "b", "queue": "c", "more": 1}`},
		{"JobEnqueued", `{"id": "1", "kind": "a", "state": "b", "queue": "c"}`},
		{"JobEnqueued", `{"kind": "a", "state": "b", "queue": "c"}`},
		{"CronTickList", `{"items": [{"cron": 1}]}`},
		{"LeaderTenureList", `{"items": [{"role": "r", "term": 1, "node_id": "n", "incarnation": "i", "acquired_at": "today"}]}`},
	} {
		if err := check(t, compiler, "/components/schemas/"+c.name, c.text); err == nil {
			t.Errorf("%s takes %s", c.name, c.text)
		}
	}
}

func TestTheDocumentAsAPage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	doc, _ := servedDocument(t, h)
	page := get(t, h, web.DocsPath)
	if page.Code != http.StatusOK {
		t.Fatal(page.Code)
	}
	checkNothingInline(t, web.DocsPath, page.Body.String())
	for path, methods := range doc.Paths {
		for method, op := range methods {
			for _, want := range []string{`id="` + op.ID + `"`, strings.ToUpper(method) + " " + path, op.Summary} {
				if !strings.Contains(strings.ReplaceAll(page.Body.String(), "&#39;", "'"), want) {
					t.Errorf("the page lacks %s", want)
				}
			}
		}
	}
	for range 5 {
		if again := get(t, handlerOf(c), web.DocsPath); again.Body.String() != page.Body.String() {
			t.Fatal("the page is another one when it is made again")
		}
	}
	if !strings.Contains(page.Body.String(), `<p>201 <a href="#s-JobEnqueued">JobEnqueued</a></p>`) {
		t.Error("the page does not say what a request for a job is answered")
	}
	for name := range doc.Components.Schemas {
		if !strings.Contains(page.Body.String(), `id="s-`+name+`"`) {
			t.Errorf("the page lacks the schema %s", name)
		}
	}
	options := optionsOf(c)
	options.Auth.Tokens = dashboardtest.Tokens{Cluster: c}
	if w := requestAs(t, New(options), "", "GET", web.DocsPath); w.Code != http.StatusSeeOther {
		t.Errorf("a stranger is not led to the login: %d", w.Code)
	}
}
