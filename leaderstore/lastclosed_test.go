package leaderstore_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forge-scheduler/forge/leaderstore"
)

// The server must notice the end when the node closes its session, not only when the
// process ends: otherwise the lock would remain held.
func TestDuplicatedConnectionClosesBothDescriptors(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := leaderstore.DuplicateDescriptor(dialled)
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	second := leaderstore.Second(conn)
	if second < 512 {
		t.Errorf("the second descriptor is %d; want it above the others", second)
	}
	if flags, err := unix.FcntlInt(uintptr(second), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a child process would inherit the descriptor: flags %x, %v", flags, err)
	}
	for range 2 {
		_ = conn.Close() // closing twice returns an error and must close nothing else
	}
	if err := accepted.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the server reads %v after the end; want EOF", err)
	}
}
