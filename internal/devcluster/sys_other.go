//go:build !linux

package devcluster

import "syscall"

// nodeAttributes put a node into a process group of its own, because Ctrl-C at
// the terminal is ours to pass on. Its lifeline ends it with us.
func nodeAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
