package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

// documentation holds answers to the document that the API gives of itself.
type documentation struct {
	doc      apiDocument
	compiler *validator.Compiler
	routes   *http.ServeMux

	mu      sync.Mutex // a compiler is for one at a time
	schemas map[string]*validator.Schema
}

var theDocumentation = sync.OnceValues(func() (*documentation, error) {
	options := newCluster().options()
	options.ClusterMetrics = options.Metrics
	s := makeServer(options)
	d, err := s.described()
	if err != nil {
		return nil, err
	}
	held := &documentation{compiler: validator.NewCompiler(), routes: http.NewServeMux(), schemas: map[string]*validator.Schema{}}
	if held.doc, err = s.describeAPI(); err != nil {
		return nil, err
	}
	tree, err := validator.UnmarshalJSON(bytes.NewReader(d.text))
	if err != nil {
		return nil, err
	}
	held.compiler.DefaultDraft(validator.Draft2020)
	held.compiler.AssertFormat()
	for path := range held.doc.Paths {
		held.routes.Handle(path, http.NotFoundHandler())
	}
	return held, held.compiler.AddResource(documentURL, tree)
})

// hold checks an answer that a test was given, whatever the test is about.
func hold(t *testing.T, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	d, err := theDocumentation()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.check(r, w); err != nil {
		t.Errorf("%s %s is answered %d, and not as documented: %v\n%.500s", r.Method, r.URL, w.Code, err, w.Body)
	}
}

// check knows the operation by the address. What has none is a problem, or no matter
// for programs.
func (d *documentation) check(r *http.Request, w *httptest.ResponseRecorder) error {
	media, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	_, path := d.routes.Handler(r)
	method := strings.ToLower(strings.Replace(r.Method, http.MethodHead, http.MethodGet, 1))
	op, known := d.doc.Paths[path][method]
	switch {
	case w.Header().Get("Content-Encoding") != "" || w.Code < http.StatusOK || w.Code/100 == 3:
		return nil
	case !known && (!strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == docsPath):
		return nil
	case !known && media != problemMedia:
		return fmt.Errorf("%s is no problem", media)
	case !known:
		return nil
	}
	status := strconv.Itoa(w.Code)
	response, known := op.Responses[status]
	if _, listed := response.Content[media]; !known || !listed {
		status, response = "default", op.Responses["default"]
	}
	if _, listed := response.Content[media]; !listed || (status == "default") != (media == problemMedia) && status != "429" {
		return fmt.Errorf("%q is none of its answers", media)
	}
	if r.Method == http.MethodHead || media == "text/plain" || media == yamlMedia {
		return nil
	}
	where := "/paths/" + pointerStep(path) + "/" + method + "/responses/" + status + "/content/" + pointerStep(media) + "/schema"
	return d.conforms(where, media, w.Body.Bytes())
}

func pointerStep(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// conforms checks JSON, or each line of it.
func (d *documentation) conforms(where, media string, text []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	schema := d.schemas[where]
	if schema == nil {
		var err error
		if schema, err = d.compiler.Compile(documentURL + "#" + where); err != nil {
			return err
		}
		d.schemas[where] = schema
	}
	parts := [][]byte{text}
	if media == linesMedia {
		parts = bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	}
	var wrong []error
	for _, part := range parts {
		if len(part) == 0 && media == linesMedia {
			continue // nothing was said
		}
		tree, err := validator.UnmarshalJSON(bytes.NewReader(part))
		if err == nil {
			err = schema.Validate(tree)
		}
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// What holds the answers of every test tells those that are not as documented.
func TestHoldingAnswersToTheDocument(t *testing.T) {
	t.Parallel()
	d, err := theDocumentation()
	if err != nil {
		t.Fatal(err)
	}
	added := `{"id":1,"kind":"a","state":"available","queue":"c"}`
	wrong := `{"type":"about:blank","title":"Conflict","status":409}`
	for _, c := range []struct {
		method, path string
		status       int
		media, body  string
		fits         bool
	}{
		{"POST", "/api/v1/jobs", 201, jsonMedia, added, true},
		{"POST", "/api/v1/jobs", 200, jsonMedia, added, true},
		{"POST", "/api/v1/jobs", 202, jsonMedia, added, false},
		{"POST", "/api/v1/jobs", 201, jsonMedia, `{"id":1}`, false},
		{"POST", "/api/v1/jobs", 201, "text/html", added, false},
		{"POST", "/api/v1/jobs", 409, problemMedia, wrong, true},
		{"POST", "/api/v1/jobs", 409, jsonMedia, wrong, false},
		{"POST", "/api/v1/jobs", 429, problemMedia, wrong, true},
		{"POST", "/api/v1/jobs", 409, problemMedia, `{"status":409}`, false},
		{"GET", "/api/v1/jobs/7/logs", 200, linesMedia, "", true},
		{"GET", "/api/v1/jobs/7/logs", 200, linesMedia, `{"seq":1}` + "\n", false},
		{"GET", "/api/v1/nothing", 404, problemMedia, wrong, true},
		{"GET", "/api/v1/nothing", 404, "text/html", "", false},
		{"PUT", "/api/v1/jobs", 405, "text/html", "", false},
		{"GET", "/readyz", 503, jsonMedia, `{"ready":false,"node_id":"a"}`, true},
		{"GET", "/nodes", 200, "text/html", "", true},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", c.media)
		w.WriteHeader(c.status)
		_, _ = w.WriteString(c.body)
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		if err := d.check(r, w); (err == nil) != c.fits {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
