package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/api"
	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/pages"
	"github.com/forge-scheduler/forge/leaderstore"
)

// optionsOf returns the options with which node-1 serves the cluster.
func optionsOf(c *dashboardtest.Cluster) Options {
	return Options{
		Cluster: dashboardtest.Options(c),
		Auth:    auth.Options{Audit: dashboardtest.Audit{Cluster: c}, AllowedHosts: auth.LoopbackHosts()},
		API: api.Options{
			Leads: func(role string) (leaderstore.Fence, bool) {
				return leaderstore.Fence{Role: role, Term: 7, NodeID: "node-1", Incarnation: dashboardtest.Incarnation}, role == "scheduler"
			},
			File:    dashboardtest.File{Cluster: c},
			Metrics: fakeMetrics,
			ClusterMetrics: func(context.Context) (http.Handler, error) {
				return dashboardtest.Read(c, func() http.Handler { return fakeMetrics })
			},
		},
		Pages: pages.Options{Changes: c, File: dashboardtest.File{Cluster: c}},
	}
}

var fakeMetrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("forge_build_info 1\n"))
})

func handlerOf(c *dashboardtest.Cluster) http.Handler { return New(optionsOf(c)) }

// get sends a GET like a browser on the same machine and compares the answer with the
// OpenAPI document.
func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	return ask(t, h, http.MethodGet, path)
}

func ask(t *testing.T, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8080"+path, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	checkDocumented(t, r, w)
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var body T
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("body %q: %v", w.Body, err)
	}
	return body
}
