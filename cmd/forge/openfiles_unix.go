//go:build unix

package main

import "golang.org/x/sys/unix"

// openFiles is how many files this process may have open at once. Go has raised it
// as far as the hard limit goes.
func openFiles() (most uint64, known bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return limit.Cur, true
}
