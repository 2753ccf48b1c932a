//go:build unix

package main

import "syscall"

// openFiles returns the limit of open files. Go raises the soft limit to the hard limit at start.
func openFiles() (limit uint64, known bool) {
	var files syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files)
	return files.Cur, err == nil
}
