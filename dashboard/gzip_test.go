package dashboard

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

// getWithEncoding sends a request with an Accept-Encoding, and returns the answer and its
// decoded body.
func getWithEncoding(t *testing.T, h http.Handler, method, path, encoding string) (w *httptest.ResponseRecorder, plain string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, http.NoBody)
	r.Header.Set("Accept-Encoding", encoding)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Header().Get("Content-Encoding") != "gzip" {
		return w, w.Body.String()
	}
	zip, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	body, err := io.ReadAll(zip)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return w, string(body)
}

func TestPagesAndDocumentsAreCompressed(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	for range 5 {
		c.Crons = append(c.Crons, c.Crons...)
	}
	h := handlerOf(c)
	tests := []struct {
		path, encoding string
		status         int
		packed         bool
	}{
		{path: "/", encoding: "gzip, br", status: 200, packed: true},
		{path: "/", encoding: "identity", status: 200},
		{path: "/", encoding: "br, GZIP;q=0.5", status: 200, packed: true},
		{path: "/", encoding: "gzip;q=0", status: 200},
		{path: "/", encoding: "*, gzip; q=0.0", status: 200},
		{path: "/", encoding: "br;q=1, *;q=0.1", status: 200, packed: true},
		{path: "/", encoding: "*;q=0", status: 200},
		{path: "/", status: 200},
		{path: "/jobs/9999", encoding: "gzip", status: 404, packed: true},
		{path: "/api/v1/crons", encoding: "gzip", status: 200, packed: true},
		{path: "/healthz", encoding: "gzip", status: 200}, // too small
		{path: "/leader/emperor", encoding: "gzip", status: 404},
	}
	for _, test := range tests {
		t.Run(test.path+" "+test.encoding, func(t *testing.T) {
			t.Parallel()
			w, body := getWithEncoding(t, h, http.MethodGet, test.path, test.encoding)
			if packed := w.Header().Get("Content-Encoding") == "gzip"; packed != test.packed || w.Code != test.status {
				t.Errorf("status %d, packed %v; want %d, %v", w.Code, packed, test.status, test.packed)
			}
			if got := w.Header().Get("Vary"); got != "Accept-Encoding" {
				t.Errorf("Vary is %q", got)
			}
			if plain := get(t, h, test.path); plain.Code != w.Code || strings.Count(body, "\n") != strings.Count(plain.Body.String(), "\n") {
				t.Errorf("unpacked it differs from the plain answer:\n%s\n%s", body, plain.Body)
			}
		})
	}
}

func TestGzipWritersAreReused(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for range 20 {
		if _, body := getWithEncoding(t, h, http.MethodGet, "/", "gzip"); strings.Count(body, "</html>") != 1 {
			t.Fatalf("not one whole page:\n%s", body)
		}
	}
}

func TestStreamsAreNotCompressed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(handlerOf(dashboardtest.New()))
	defer server.Close()
	// The client requests gzip itself, and the parts of the stream still arrive one by one.
	events, stop := follow(t, server.URL+"/events?page=overview")
	defer stop()
	await(t, events, "leaders", "node-1")
}
