package parts_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
	"github.com/forge-scheduler/forge/test/parts"
)

// envChild has TestMakerOfANamespace be one that is killed.
const envChild = "PARTS_TEST_CHILD"

// Whoever made a namespace is killed: the namespace goes, and what lives inside.
func TestNamespaceEndsWithItsMaker(t *testing.T) {
	t.Parallel()
	pgtest.Namespace(t) // or this test is not for here
	child := exec.Command(os.Args[0], "-test.run=^TestMakerOfANamespace$", "-test.v")
	child.Env = append(os.Environ(), envChild+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var outside string
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "lives inside: %d %s", &pid, &outside)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if pid == 0 {
		t.Fatal("nothing lives inside")
	}
	nodes.Eventually(t, nodes.WaitTimeout, "what lives inside ends", func() bool { return !lives(pid) })
	nodes.Eventually(t, nodes.WaitTimeout, "the link goes", func() bool {
		addresses, err := net.InterfaceAddrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range addresses {
			if strings.HasPrefix(address.String(), outside+"/") {
				return false
			}
		}
		return true
	})
}

// lives says whether there is a process that has not ended: nobody may be there to
// take note of its end.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && syscall.Kill(pid, 0) == nil && !strings.Contains(string(stat), ") Z ")
}

// TestMakerOfANamespace does nothing unless it runs as the child of another test.
func TestMakerOfANamespace(t *testing.T) {
	t.Parallel()
	if os.Getenv(envChild) == "" {
		return
	}
	namespace, err := parts.NewNamespace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	line := namespace.Inside("sleep", "1000")
	inside := exec.Command(line[0], line[1:]...) //nolint:gosec // our own; it ends with the namespace
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	// As nodes are: nobody's who would be killed together with us.
	nodes.Eventually(t, nodes.WaitTimeout, "it is inside", func() bool {
		there, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", inside.Process.Pid))
		here, _ := os.Readlink("/proc/self/ns/net")
		return there != "" && there != here
	})
	fmt.Printf("lives inside: %d %s\n", inside.Process.Pid, namespace.Outside())
	time.Sleep(time.Hour)
}
