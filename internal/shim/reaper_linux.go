package shim

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// executable returns the path of the running binary itself: after an upgrade the original
// path may hold another version, which may read orders differently.
func executable() (string, error) { return "/proc/self/exe", nil }

// clock advances while the machine is suspended, and is the same in every process.
func clock() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }

func becomeReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a sub-reaper: %w", err)
	}
	return nil
}

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// descendants returns every process below the shim. The command's own pid is not needed:
// a process that loses its parent becomes the shim's child.
func descendants(int) []int {
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if parent := parentOf(pid); parent > 0 {
				children[parent] = append(children[parent], pid)
			}
		}
	}
	var found []int
	for queue := []int{os.Getpid()}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

// parentOf returns the parent of a process, 0 when it is gone. The program's name in the
// second field may contain anything, so the fields are counted from its end.
func parentOf(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return parent
}

// receiveFlags keep received descriptors out of any process that is forked at the same
// time.
const receiveFlags = unix.MSG_CMSG_CLOEXEC

// priority returns the nice value of this thread. The kernel counts from 40 down to 1.
func priority() (int, error) {
	value, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return 20 - value, err
}
