//go:build unix

package main

import "golang.org/x/sys/unix"

// openFiles returns how many files this process may have open at once. Go raises the soft limit to
// the hard limit at start.
func openFiles() (most uint64, known bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return limit.Cur, true
}
