package dashboard

import (
	"bytes"
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
)

// seeds are bodies that some route accepts, and bodies with every kind of error.
var seeds = []string{
	`{"name":"ci","scope":"admin","expires":"90d"}`, `{"for":"2h","reason":"x"}`, `{"until":"2026-11-21T00:00:00Z"}`, `{"to":"node-2"}`,
	`{"from":"2026-11-01T00:00:00Z","to":"2026-11-02T00:00:00Z","limit":7,"dry_run":true}`, `{"kind":"dump"}`, `{"ids":[1,2],"all":false}`,
	`{"at":"2026-11-19T02:00:00Z","args":{"a":[1]}}`, `{"kind":"dump","args":{"a":{"b":[{"c":1,"c":2}]}},"unique":"k","priority":1}`,
	"", "{}", "[]", "null", "true", "1e999", `"`, `{`, `{"kind":`, `{} {}`, `{"kind":"dump","kind":"dump"}`, `{"for":"2h","for":"2h"}`, `{"KIND":1}`, `{"kind":"dump"}` + "\x00",
	"{\"kind\":\"\xff\"}", `{"kind":"\u0000"}`, `{"kind":"\ud800"}`, `{"name":"<script>\u202e\u001b[31m"}`, "\ufeff{}",
	strings.Repeat(`{"a":`, 100), strings.Repeat("[", 11_000), `{"args":` + strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70) + `}`,
	`{"ids":[9223372036854775808]}`, `{"limit":1e400,"priority":-0.0}`, `{"priority":1.0}`, `{"older_than":"-5s","newer_than":"99999999999h"}`,
	"token=admin&next=//evil.example", "kind=dump&args=%7B%7D&raw=1", "to=node-2", "for=2h&until=&reason=%00", "from=2026-11-19T00:00&to=2026-11-20T00:00&limit=9",
	"%", "a=%zz", "a;b", "kind=dump&kind=x", "did=%0d%0aSet-Cookie:+a=b",
}

// fuzzed is a server with all routes that take a body, in a fixed order.
type fuzzed struct {
	cluster *dashboardtest.Cluster
	kept    dashboardtest.Once
	handler http.Handler
	routes  map[string]route.Route
	paths   []string
	now     time.Time
}

func newFuzzed() *fuzzed {
	c, options := clusterWithTokens()
	f := &fuzzed{cluster: c, kept: dashboardtest.Once{}, routes: map[string]route.Route{}, now: dashboardtest.Epoch}
	options.API.Once = f.kept
	options.Cluster.Now = func() time.Time { return f.now }
	f.handler = New(options)
	for path, r := range addresses(makeServer(options)) {
		if path, _, _ := strings.Cut(path, "?"); r.Post != nil {
			f.routes[path] = r
		}
	}
	f.paths = slices.Sorted(maps.Keys(f.routes))
	return f
}

// send sends a request to a server without earlier requests and without rate limits.
func (f *fuzzed) send(t *testing.T, path, contentType, key string, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	f.cluster.Done, f.cluster.Audit, f.now = nil, nil, f.now.Add(time.Hour)
	clear(f.kept)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8080"+path, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Authorization", "Bearer admin")
	if key != "" {
		r.Header.Set(route.KeyHeader, key)
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return w
}

// FuzzBodies sends any body of any type with any key to any route that takes one. No
// request breaks the server. A refused request changes nothing and gets an error in the
// right form. An accepted request was parsed as the client meant it. Both are recorded.
func FuzzBodies(f *testing.F) {
	server := newFuzzed()
	for i := range server.paths {
		for j, seed := range seeds {
			contentType := jsonType
			if strings.HasPrefix(server.paths[i], "/api/") == (j%8 == 7) {
				contentType = formType
			}
			f.Add(uint8(i), contentType, []string{"", "k", `"k"`, "a b"}[j%4], []byte(seed))
		}
	}
	for i, contentType := range []string{"", "text/plain", "application/json; charset=utf-8", "application/json;", "multipart/form-data; boundary=x", "\x00"} {
		f.Add(uint8(i), contentType, "", []byte(`{}`))
	}
	f.Fuzz(func(t *testing.T, which uint8, contentType, key string, body []byte) {
		path := server.paths[int(which)%len(server.paths)]
		w := server.send(t, path, contentType, key, body)
		least := 1
		if server.routes[path].Write == route.Open {
			least = 0 // requests that change nothing are not recorded
		}
		if n := len(server.cluster.Audit); n > 1 || n < least || n > 0 && server.cluster.Audit[0].Outcome != auth.OutcomeOf(w.Code) {
			t.Errorf("%s %q: %d, and written down is %v", path, body, w.Code, server.cluster.AuditLines())
		}
		switch {
		case w.Code >= http.StatusInternalServerError:
			t.Errorf("%s %q: %d %s", path, body, w.Code, w.Body)
		case w.Code >= http.StatusBadRequest:
			server.checkRefused(t, path, body, w)
		case server.routes[path].Posts != nil:
			checkAccepted(t, path, server.routes[path].Posts.Body, contentType, body)
		default:
			checkRedirect(t, path, body, w)
		}
	})
}

// checkRefused expects a problem document, or a page without anything that runs.
func (f *fuzzed) checkRefused(t *testing.T, path string, body []byte, w *httptest.ResponseRecorder) {
	t.Helper()
	for _, what := range f.cluster.Done {
		if !strings.HasPrefix(what, "plan ") {
			t.Errorf("%s %q: %d, and did %s", path, body, w.Code, what)
		}
	}
	if f.routes[path].Posts == nil {
		checkNothingInline(t, path, w.Body.String())
		return
	}
	if w.Header().Get("Content-Type") != web.ProblemMedia || decode[web.Problem](t, w).Status != w.Code || strings.ContainsAny(w.Body.String(), "<>\x1b\u202e") {
		t.Errorf("%s %q: no problem document: %s", path, body, w.Body)
	}
}

// checkAccepted compares the accepted body with what the standard library reads: an object
// of known fields, each at most once.
func checkAccepted(t *testing.T, path string, takes reflect.Type, contentType string, body []byte) {
	t.Helper()
	if len(body) == 0 {
		return
	}
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != web.JSONMedia {
		t.Errorf("%s took a body of the type %q", path, contentType)
	}
	if takes == nil {
		takes = reflect.TypeFor[struct{}]()
	}
	strict, standard := reflect.New(takes).Interface(), reflect.New(takes).Interface()
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(standard); err != nil || !utf8.Valid(body) {
		t.Errorf("%s took %q: %v", path, body, err)
	}
	if err := web.StrictJSON(body, strict); err != nil || !reflect.DeepEqual(strict, standard) {
		t.Errorf("%s read %q as %+v, want %+v; %v", path, body, strict, standard, err)
	}
	var tree map[string]any
	decoder = json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		t.Errorf("%s took %q: %v", path, body, err)
	}
	again, err := json.Marshal(tree)
	if err != nil || tokens(again) != tokens(body) {
		t.Errorf("%s took %q, of which a field stands twice: %s, %v", path, body, again, err)
	}
}

// tokens counts the tokens of a JSON text.
func tokens(text []byte) (n int) {
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; n++ {
		if _, err := decoder.Token(); err != nil {
			return n
		}
	}
}

// checkRedirect expects a redirect to a page of this site, without a body.
func checkRedirect(t *testing.T, path string, body []byte, w *httptest.ResponseRecorder) {
	t.Helper()
	to := w.Header().Get("Location")
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n") {
		t.Errorf("%s %q: %d to %q", path, body, w.Code, to)
	}
}
