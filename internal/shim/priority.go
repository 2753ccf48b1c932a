//go:build unix

package shim

import "golang.org/x/sys/unix"

// lowered is the amount by which this process has lowered its priority.
var lowered int

// lowerPriority lowers the priority of the commands that this thread starts from now on.
// It cannot be undone. Where it is not allowed, it has no effect.
func lowerPriority(by int) {
	if by <= lowered {
		return
	}
	now, err := priority()
	if err != nil {
		return
	}
	if unix.Setpriority(unix.PRIO_PROCESS, 0, now+by-lowered) == nil {
		lowered = by
	}
}
