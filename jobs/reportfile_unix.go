//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package jobs

import (
	"os"
	"syscall"
)

// openReport is how a report of another process is opened: others may create anything in the
// temporary directory.
const openReport = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// lockReport reports whether the file is locked now, which lasts until it is closed or the process
// ends. Commands do not inherit the lock.
func lockReport(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil //nolint:gosec // a descriptor
}
