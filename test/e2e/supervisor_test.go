package e2e

import (
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

// systemd, as a node meets it: it is told that the node is ready, sees it live, and
// is told that it stops.
func TestSupervisorIsTold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(nodes.OpenDir(t), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	const patience = 300 * time.Millisecond
	c := newCluster(t, everySecond+unhurried)
	p := c.startProgram(forgeBinary(t), "a", "NOTIFY_SOCKET="+path, "WATCHDOG_USEC="+strconv.FormatInt(patience.Microseconds(), 10))
	c.leader(0)
	says := func(want string) bool {
		state := next(t, socket)
		if state != "READY=1" && state != "WATCHDOG=1" {
			t.Errorf("a node that runs says %q", state)
		}
		return state == want
	}
	for !says("READY=1") { // it shows that it lives before
	}
	for range 5 {
		if !says("WATCHDOG=1") {
			t.Error("it says again that it is ready")
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for next(t, socket) != "STOPPING=1" {
	}
	c.awaitExit("a")
}

// next is what the node says next.
func next(t *testing.T, socket *net.UnixConn) string {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(nodes.Patience)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 256)
	n, err := socket.Read(buffer)
	if err != nil {
		t.Fatalf("nothing more is said: %v", err)
	}
	return string(buffer[:n])
}
