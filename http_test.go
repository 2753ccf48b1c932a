package forge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/config"
)

// Any client could create a token, which would remain valid after auth = "none".
func TestListenerWithoutAuthRejectsTokenCreation(t *testing.T) {
	t.Parallel()
	n := &Node{cfg: config.Default()}
	_, _, err := n.tokenKeeper().Create(t.Context(), access.NewToken{Name: "ci", Scope: access.Admin})
	if !errors.Is(err, access.ErrOpen) {
		t.Errorf("got %v, want %v", err, access.ErrOpen)
	}
}

// A client that sends a request header in small pieces cannot keep a connection.
func TestSlowRequestHeaderTimesOut(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(context.WithoutCancel(t.Context()), http.NotFoundHandler())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // always returns an error
	}()
	defer func() {
		_ = server.Close()
		<-done
	}()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	stop := make(chan struct{})
	defer close(stop)
	go sendEndlessHeader(conn, stop)
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute)) // otherwise the read would never end
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is open still")
	}
}

// sendEndlessHeader sends a header without an end.
func sendEndlessHeader(conn net.Conn, stop <-chan struct{}) {
	for piece := "GET / HTTP/1.1\r\nHost: a\r\nX-A: "; ; piece = "a" {
		if _, err := io.WriteString(conn, piece); err != nil {
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}
