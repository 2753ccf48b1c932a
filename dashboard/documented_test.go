package dashboard

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/test/openapi"
)

var theDocument = sync.OnceValues(func() (*openapi.Document, error) {
	text, err := makeServer(optionsOf(dashboardtest.New())).api.DocumentText()
	if err != nil {
		return nil, err
	}
	return openapi.Parse(text)
})

// checkDocumented compares an answer with the OpenAPI document. All tests call it for the
// answers they receive.
func checkDocumented(t *testing.T, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	d, err := theDocument()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Check(r, answerOf(w)); err != nil {
		t.Errorf("%s %s is answered %d, and not as documented: %v\n%.500s", r.Method, r.URL, w.Code, err, w.Body)
	}
}

func answerOf(w *httptest.ResponseRecorder) openapi.Answer {
	return openapi.Answer{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}
}

// The check that all tests apply detects answers that differ from the document.
func TestUndocumentedAnswersAreDetected(t *testing.T) {
	t.Parallel()
	d, err := theDocument()
	if err != nil {
		t.Fatal(err)
	}
	added := `{"id":1,"kind":"a","verdict":"added","state":"available","queue":"c","scheduled_at":"2027-01-01T00:00:00Z"}`
	wrong := `{"type":"about:blank","title":"Conflict","status":409}`
	for _, c := range []struct {
		method, path string
		status       int
		media, body  string
		fits         bool
	}{
		{"POST", "/api/v1/jobs", 201, web.JSONMedia, added, true},
		{"POST", "/api/v1/jobs", 200, web.JSONMedia, added, true},
		{"POST", "/api/v1/jobs", 202, web.JSONMedia, added, false},
		{"POST", "/api/v1/jobs", 201, web.JSONMedia, `{"id":1}`, false},
		{"POST", "/api/v1/jobs", 201, "text/html", added, false},
		{"POST", "/api/v1/jobs", 409, web.ProblemMedia, wrong, true},
		{"POST", "/api/v1/jobs", 409, web.JSONMedia, wrong, false},
		{"POST", "/api/v1/jobs", 429, web.ProblemMedia, wrong, true},
		{"POST", "/api/v1/jobs", 409, web.ProblemMedia, `{"status":409}`, false},
		{"GET", "/api/v1/jobs/7/logs", 200, route.LinesMedia, "", true},
		{"GET", "/api/v1/jobs/7/logs", 200, route.LinesMedia, `{"seq":1}` + "\n", false},
		{"GET", "/api/v1/nothing", 404, web.ProblemMedia, wrong, true},
		{"GET", "/api/v1/nothing", 404, "text/html", "", false},
		{"PUT", "/api/v1/jobs", 405, "text/html", "", false},
		{"GET", "/readyz", 503, web.JSONMedia, `{"ready":false,"node_id":"a"}`, true},
		{"GET", "/nodes", 200, "text/html", "", true},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", c.media)
		w.WriteHeader(c.status)
		_, _ = w.WriteString(c.body)
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		if err := d.Check(r, answerOf(w)); (err == nil) != c.fits {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
