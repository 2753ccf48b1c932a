package parts_test

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/parts"
)

func TestMissingProgramIsNamed(t *testing.T) {
	t.Parallel()
	_, err := parts.Program("no-such-program", "apt-get install it")
	missing, ok := errors.AsType[*parts.MissingError](err)
	if !ok || missing.Part != "no-such-program" || missing.Install != "apt-get install it" {
		t.Errorf("Program = %v", err)
	}
}

func TestMultiHostNamesEveryServer(t *testing.T) {
	t.Parallel()
	got, err := parts.MultiHost("postgres://u:p@127.0.0.1:1/db?sslmode=disable", "postgres://u:p@127.0.0.1:2/db?sslmode=disable")
	if want := "postgres://u:p@127.0.0.1:1,127.0.0.1:2/db?sslmode=disable&target_session_attrs=read-write"; err != nil || got != want {
		t.Errorf("MultiHost = %q, %v; want %q", got, err, want)
	}
}

// Datagrams tell what is lost in which direction; none is ever sent again.
func TestNamespaceLosesPackets(t *testing.T) {
	t.Parallel()
	namespace := pgtest.Namespace(t)
	outside, err := net.ListenUDP("udp", &net.UDPAddr{IP: namespace.Outside().AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outside.Close() }()
	for _, step := range []struct {
		name             string
		set              func(*parts.Namespace) error
		arrives, answers bool
	}{
		{"whole", nil, true, true},
		{"replies lost", func(n *parts.Namespace) error { return n.DropReplies(t.Context()) }, true, false},
		{"requests lost", func(n *parts.Namespace) error { return n.DropRequests(t.Context()) }, false, false},
		{"all lost", func(n *parts.Namespace) error { return n.Drop(t.Context()) }, false, false},
		{"healed", func(n *parts.Namespace) error { return n.Heal(t.Context()) }, true, true},
	} {
		if step.set != nil {
			if err := step.set(namespace); err != nil {
				t.Fatal(err)
			}
		}
		if arrives, answers := exchange(t, namespace, outside, step.arrives, step.answers); arrives != step.arrives || answers != step.answers {
			t.Errorf("%s: a request arrives: %t, its answer: %t", step.name, arrives, answers)
		}
	}
}

// exchange asks from inside and answers from outside. What is not wanted is
// waited for less long. The answer is one byte: bash reads no more of a datagram.
func exchange(t *testing.T, namespace *parts.Namespace, outside *net.UDPConn, wantArrival, wantAnswer bool) (arrives, answers bool) {
	t.Helper()
	waitTimeout := map[bool]time.Duration{true: 2 * time.Minute, false: time.Second}
	ask := fmt.Sprintf("exec 3<>/dev/udp/%s/%d; echo ask >&3; read -t %d -u 3",
		namespace.Outside(), outside.LocalAddr().(*net.UDPAddr).Port, int(waitTimeout[wantAnswer].Seconds())) //nolint:forcetypeassert // ours
	line := namespace.Inside("bash", "-c", ask)
	cmd := exec.Command(line[0], line[1:]...) //nolint:gosec // our own
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := outside.SetReadDeadline(time.Now().Add(waitTimeout[wantArrival])); err != nil {
		t.Fatal(err)
	}
	_, from, err := outside.ReadFromUDPAddrPort(make([]byte, 16))
	if arrives = err == nil; arrives {
		if _, err := outside.WriteToUDPAddrPort([]byte("\n"), from); err != nil {
			t.Fatal(err)
		}
	}
	return arrives, cmd.Wait() == nil
}
