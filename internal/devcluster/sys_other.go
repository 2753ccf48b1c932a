//go:build unix && !linux

package devcluster

import "syscall"

// nodeAttributes puts a node into its own process group, because the cluster passes on
// Ctrl-C from the terminal itself. The lifeline ends the node with the cluster.
func nodeAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
