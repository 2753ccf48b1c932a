//go:build unix

package shim

import "golang.org/x/sys/unix"

// lowered is by how much this process has lowered its priority.
var lowered int

// lowerPriority makes the commands that this thread starts from now on give way to
// the node. It cannot be taken back, and where it is not allowed they are equals.
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
