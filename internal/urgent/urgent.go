// Package urgent runs what keeps a node in its cluster, renewals and heartbeats, on
// threads of their own, which the system prefers to others where it may.
package urgent

import "runtime"

// niceness is what such a thread is set to: little work that must not wait.
const niceness = -10

// Run calls work in a goroutine with a thread of its own, and returns what it does.
// The thread ends with the goroutine, so that no other work is preferred by mistake.
func Run(work func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		prefer()
		done <- work()
	}()
	return <-done
}
