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

// served is a server behind connections that are bounded; its handler blocks where the
// path is /slow until something is sent on slow or the test ends, and answers how it came
// in.
func served(t *testing.T, most, mostOfOne int) (address string, slow, begun chan struct{}) {
	t.Helper()
	slow, begun = make(chan struct{}), make(chan struct{})
	raw, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	_ = server.Listener.Close()
	server.Listener = newConnections(raw, most, mostOfOne)
	server.Config = newServer(context.WithoutCancel(t.Context()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case begun <- struct{}{}:
				<-slow
			case <-slow:
			}
		}
		_, _ = fmt.Fprintf(w, "beyond: %v", beyondLimits(r.Context()))
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

// ask sends a request over a connection of its own and returns the answer.
func ask(t *testing.T, address, path string) string {
	t.Helper()
	conn := dial(t, address)
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", path)
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// A thousand connections that send nothing keep nobody out, not even from the same
// address, and no more than the limit are open.
func TestIdleConnectionsGiveWay(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][2]int{"in all": {20, 1000}, "of one address": {1000, 20}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _, _ := served(t, limits[0], limits[1])
			var idle []net.Conn
			for range 200 {
				idle = append(idle, dial(t, address))
			}
			for i := range 5 {
				if got := ask(t, address, "/"); !strings.Contains(got, "beyond: false") {
					t.Fatalf("request %d: %q", i, got)
				}
			}
			if open := stillOpen(idle); open > 20 {
				t.Errorf("%d connections are open, want at most 20", open)
			}
		})
	}
}

// Over connections beyond the limits requests are known as such, and a client that keeps
// silent cannot keep those either.
func TestConnectionsBeyondLimits(t *testing.T) {
	t.Parallel()
	address, slow, begun := served(t, 1000, 8)
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
	if got := ask(t, address, "/"); !strings.Contains(got, "beyond: true") {
		t.Fatalf("the limit is not reached: %q", got)
	}
	var silent []net.Conn
	for range 2 * spareConnections {
		silent = append(silent, dial(t, address))
	}
	if got := ask(t, address, "/"); !strings.Contains(got, "beyond: true") {
		t.Errorf("behind silent connections: %q", got)
	}
	if open := stillOpen(silent); open > spareConnections {
		t.Errorf("%d silent connections are open beyond the limits, want at most %d", open, spareConnections)
	}
	for range 8 {
		slow <- struct{}{}
		if got := <-busy; !strings.Contains(got, "beyond: false") {
			t.Errorf("a request within the limit: %q", got)
		}
	}
}

// stillOpen counts connections that the other end has not closed.
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

// The accounts of connections agree with what is open.
func TestConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	l := newConnections(nil, 3, 2)
	conn := func() net.Conn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
		return ours
	}
	first, _ := l.admit(conn())
	second, _ := l.admit(conn())
	third, displaced := l.admit(conn())
	if displaced != first || l.all != 2 {
		t.Fatalf("the third displaced %p, want the first; %d are open", displaced, l.all)
	}
	connectionChanged(second, http.StateActive)
	connectionChanged(third, http.StateActive)
	fourth, displaced := l.admit(conn())
	if displaced != nil || !fourth.beyond || len(l.spare) != 1 {
		t.Fatalf("the fourth displaced %p; beyond: %v", displaced, fourth.beyond)
	}
	connectionChanged(second, http.StateIdle)
	if fifth, displaced := l.admit(conn()); displaced != second || fifth.beyond {
		t.Errorf("the fifth displaced %p, want the second", displaced)
	}
	for _, c := range []*connection{first, second, third, fourth, fourth} {
		_ = c.Close()
	}
	if l.all != 1 || len(l.spare) != 0 || len(l.of) != 1 {
		t.Errorf("%d are open, %d beyond the limits, from %d addresses", l.all, len(l.spare), len(l.of))
	}
}
