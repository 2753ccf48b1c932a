package netguard

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func get(t *testing.T, g Guard, address string) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return g.Client().Do(request)
}

// A client reads 64 KiB of an answer, follows no redirect and reaches no closed address.
func TestClientIsBounded(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 4<<20)) })
	mux.HandleFunc("/heads", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 2*maxConn)) })
	mux.HandleFunc("/target", func(http.ResponseWriter, *http.Request) { followed.Store(true) })
	mux.Handle("/away", http.RedirectHandler("/target", http.StatusTemporaryRedirect))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	open := Guard{AllowPrivate: true}
	answer, err := get(t, open, server.URL+"/long")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if _ = answer.Body.Close(); !errors.Is(err, ErrTooLong) || len(body) > maxConn {
		t.Errorf("read %d bytes, %v", len(body), err)
	}
	if answer, err := get(t, open, server.URL+"/heads"); err == nil {
		_ = answer.Body.Close()
		t.Errorf("headers of more than %d bytes were taken", maxConn)
	}
	answer, err = get(t, open, server.URL+"/away")
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusTemporaryRedirect || followed.Load() {
		t.Errorf("got %s, followed: %t", answer.Status, followed.Load())
	}
	if answer, err := get(t, Guard{}, server.URL+"/long"); !errors.Is(err, ErrBlocked) {
		_ = answer.Body.Close()
		t.Errorf("loopback: %v", err)
	}
}

// Whoever reads from a connection, and whatever they speak, reads a bounded amount.
func TestConnectionIsBounded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 4<<20))
	}))
	t.Cleanup(server.Close)
	conn, err := Guard{AllowPrivate: true}.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, conn); !errors.Is(err, ErrTooLong) || n != maxConn {
		t.Errorf("read %d bytes, %v", n, err)
	}
}
