package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/test/nodes"
)

// systemd, as a node meets it: it is told that the node is ready, sees it live, and
// is told that it stops.
func TestSupervisorIsNotified(t *testing.T) {
	t.Parallel()
	path := filepath.Join(nodes.OpenDir(t), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	said := listen(socket)
	t.Cleanup(func() { // and whoever listens ends
		_ = socket.Close()
		for range said {
		}
	})
	const waitTimeout = 300 * time.Millisecond
	c := newCluster(t, everySecond+unhurried)
	p := c.startProgram(forgeBinary(t), "a", "NOTIFY_SOCKET="+path, "WATCHDOG_USEC="+strconv.FormatInt(waitTimeout.Microseconds(), 10))
	c.leader(0)
	says := func(want string) bool {
		state := next(t, said)
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
	for next(t, said) != "STOPPING=1" {
	}
	drain := config.Default().Node.DrainTimeout.Std()
	if want, got := fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (drain+30*time.Second).Microseconds()), next(t, said); got != want {
		t.Errorf("after that it says %q, want %q", got, want)
	}
	c.awaitExit("a")
}

// listen hears everything at once, as systemd does: a socket takes ten texts, and a node
// that may say no more waits. It ends with the socket.
func listen(socket *net.UnixConn) <-chan string {
	said := make(chan string, 1000)
	go func() {
		defer close(said)
		buffer := make([]byte, 256)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				return
			}
			said <- string(buffer[:n])
		}
	}()
	return said
}

// next is what the node says next.
func next(t *testing.T, said <-chan string) string {
	t.Helper()
	select {
	case state := <-said:
		return state
	case <-time.After(nodes.WaitTimeout):
		t.Fatal("nothing more is said")
		return ""
	}
}
