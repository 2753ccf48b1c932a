package forge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// startBoundedServer starts a server with limited connections. Its handler blocks on /slow
// until slow receives or the test ends, and answers whether the connection is over the
// limit.
func startBoundedServer(t *testing.T, maxTotal, maxPerAddress int) (address string, slow, begun chan struct{}) {
	t.Helper()
	slow, begun = make(chan struct{}), make(chan struct{})
	raw, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	_ = server.Listener.Close()
	server.Listener = newConnections(raw, maxTotal, maxPerAddress)
	server.Config = newServer(context.WithoutCancel(t.Context()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case begun <- struct{}{}:
				<-slow
			case <-slow:
			}
		}
		_, _ = fmt.Fprintf(w, "beyond: %v", isOverLimit(r.Context()))
	}))
	server.Config.ErrorLog = nil
	server.Start()
	t.Cleanup(func() { close(slow); server.Close() })
	return raw.Addr().String(), slow, begun
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// get sends a request on a new connection and returns the answer.
func get(t *testing.T, address, path string) string {
	t.Helper()
	conn := dial(t, address)
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", path)
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// A thousand silent connections block no other client, not even from the same address. The
// open connections never exceed the limit.
func TestNewConnectionReplacesOldestIdleConnection(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][2]int{"in all": {20, 1000}, "of one address": {1000, 20}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _, _ := startBoundedServer(t, limits[0], limits[1])
			var idle []net.Conn
			for range 200 {
				idle = append(idle, dial(t, address))
			}
			for i := range 5 {
				if got := get(t, address, "/"); !strings.Contains(got, "beyond: false") {
					t.Fatalf("request %d: %q", i, got)
				}
			}
			if open := stillOpen(idle); open > 20 {
				t.Errorf("%d connections are open, want at most 20", open)
			}
		})
	}
}

// Requests on connections beyond the limits are marked as such, and a silent client cannot
// keep such a connection either.
func TestConnectionsOverLimitAreMarkedAndReplaced(t *testing.T) {
	t.Parallel()
	address, slow, begun := startBoundedServer(t, 1000, 8)
	busy := make(chan string, 8)
	for range 8 {
		conn := dial(t, address)
		_, _ = io.WriteString(conn, "GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		go func() {
			answer, _ := io.ReadAll(conn)
			busy <- string(answer)
		}()
		select {
		case <-begun:
		case answer := <-busy:
			t.Fatalf("a slow request was answered %q", answer)
		}
	}
	if got := get(t, address, "/"); !strings.Contains(got, "beyond: true") {
		t.Fatalf("the limit is not reached: %q", got)
	}
	var silent []net.Conn
	for range 2 * maxOverLimit {
		silent = append(silent, dial(t, address))
	}
	if got := get(t, address, "/"); !strings.Contains(got, "beyond: true") {
		t.Errorf("behind silent connections: %q", got)
	}
	if open := stillOpen(silent); open > maxOverLimit {
		t.Errorf("%d silent connections are open beyond the limits, want at most %d", open, maxOverLimit)
	}
	for range 8 {
		slow <- struct{}{}
		if got := <-busy; !strings.Contains(got, "beyond: false") {
			t.Errorf("a request within the limit: %q", got)
		}
	}
}

// stillOpen counts the connections that the server has not closed.
func stillOpen(conns []net.Conn) (open int) {
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				open++
			}
		}
	}
	return open
}

// The counters match the open connections.
func TestConnectionCountsMatchOpenConnections(t *testing.T) {
	t.Parallel()
	l := newConnections(nil, 3, 2)
	conn := func() net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		return near
	}
	first, _ := l.admit(conn())
	second, _ := l.admit(conn())
	third, displaced := l.admit(conn())
	if displaced != first || l.total != 2 {
		t.Fatalf("the third displaced %p, want the first; %d are open", displaced, l.total)
	}
	connectionChanged(second, http.StateActive)
	connectionChanged(third, http.StateActive)
	fourth, displaced := l.admit(conn())
	if displaced != nil || !fourth.overLimit || len(l.overLimit) != 1 {
		t.Fatalf("the fourth displaced %p; beyond: %v", displaced, fourth.overLimit)
	}
	connectionChanged(second, http.StateIdle)
	if fifth, displaced := l.admit(conn()); displaced != second || fifth.overLimit {
		t.Errorf("the fifth displaced %p, want the second", displaced)
	}
	for _, c := range []*connection{first, second, third, fourth, fourth} {
		_ = c.Close()
	}
	if l.total != 1 || len(l.overLimit) != 0 || len(l.peers) != 1 {
		t.Errorf("%d are open, %d beyond the limits, from %d addresses", l.total, len(l.overLimit), len(l.peers))
	}
}
