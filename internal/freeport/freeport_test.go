package freeport_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/freeport"
)

// TestFoundPortIsReserved listens without SO_REUSEADDR, as the system chooses a port for
// others, and with it, as a server asks for a port by number.
func TestFoundPortIsReserved(t *testing.T) {
	t.Parallel()
	found, err := freeport.Find("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	others := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		})
		return errors.Join(err, failed)
	}}
	if listener, err := others.Listen(t.Context(), "tcp", found); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen on %s without SO_REUSEADDR: %v, %v, want it to be in use", found, listener, err)
	}
	listener, err := net.Listen("tcp", found)
	if err != nil {
		t.Fatalf("listen on the found address: %v", err)
	}
	_ = listener.Close()
}
