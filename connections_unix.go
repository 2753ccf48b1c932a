//go:build unix

package forge

import "golang.org/x/sys/unix"

// canRead reports, without blocking, whether a socket has data to read.
func canRead(fd uintptr) bool {
	n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n > 0
}
