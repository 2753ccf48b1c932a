//go:build unix && !linux

package shim

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func executable() (string, error) { return os.Executable() }

// clock is the same in every process.
func clock() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }

// becomeReaper does nothing: only Linux has sub-reapers. Here a descendant that leaves
// the command's process group is left behind.
func becomeReaper() error { return nil }

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// descendants returns the command's process group.
func descendants(pid int) []int { return []int{-pid} }

// receiveFlags is empty: received descriptors are set to close on exec a moment later.
// Nothing is forked in between.
const receiveFlags = 0

// priority returns the nice value of this process.
func priority() (int, error) { return unix.Getpriority(unix.PRIO_PROCESS, 0) }
