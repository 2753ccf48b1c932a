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

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// A token that anybody could have made would outlast auth = "none".
func TestOpenListenerMakesNoTokens(t *testing.T) {
	t.Parallel()
	n := &Node{cfg: config.Default()}
	_, _, err := n.tokenKeeper().Create(t.Context(), tokenstore.New{Name: "ci", Scope: tokenstore.Admin})
	if !errors.Is(err, tokenstore.ErrOpen) {
		t.Errorf("got %v, want %v", err, tokenstore.ErrOpen)
	}
}

// Who sends a request's head a piece at a time cannot keep a connection for it.
func TestSlowHeadIsCutOff(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(context.WithoutCancel(t.Context()), http.NotFoundHandler())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // always ends with an error
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
	go dribble(conn, stop)
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute)) // or it would read for ever
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is open still")
	}
}

// dribble sends a head that has no end.
func dribble(conn net.Conn, stop <-chan struct{}) {
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
