//go:build unix && !linux

package shim

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func executable() (string, error) { return os.Executable() }

// clock counts alike in every process.
func clock() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }

// becomeReaper does nothing: only Linux has sub-reapers. A descendant that
// leaves the command's process group is left behind here.
func becomeReaper() error { return nil }

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// descendants names the command's process group.
func descendants(pid int) []int { return []int{-pid} }

// receiveFlags: descriptors that come are closed on exec a moment later. Nothing
// is forked meanwhile.
const receiveFlags = 0

// priority is the nice value of this process.
func priority() (int, error) { return unix.Getpriority(unix.PRIO_PROCESS, 0) }
