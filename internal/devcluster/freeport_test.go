package devcluster_test

import (
	"errors"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/devcluster"
)

// TestFoundPortIsReserved listens without SO_REUSEADDR, as the system does when it
// chooses a port, and with it, as a server does that requests a port by number.
func TestFoundPortIsReserved(t *testing.T) {
	t.Parallel()
	found, err := devcluster.FindPort("127.0.0.1")
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

// TestFoundPortIsFreeWhileProcessesStart starts processes meanwhile: each has the files of
// this one until it executes its program, and would keep the port in use.
func TestFoundPortIsFreeWhileProcessesStart(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	var starting sync.WaitGroup
	defer starting.Wait()
	defer close(done)
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if err := exec.CommandContext(t.Context(), "true").Run(); err != nil && t.Context().Err() == nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range 300 {
		found, err := devcluster.FindPort("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", found)
		if err != nil {
			t.Fatalf("listen on the found address: %v", err)
		}
		_ = listener.Close()
	}
}
